%% @doc Lock counts of the virtual machine. Only a VM that was built for lock counting has them (`erl -emu_type lcnt').
%% Weir's own lock waits are part of each sample: see {@link weir_scope_engine}.
-module(weir_scope_locks).

-export([all/1]).

-export_type([locks/0, lock/0]).

-type locks() :: not_counted | #{seconds := float(), locks := [lock()]}.
%% `seconds': for how long the VM has counted, since its start or the last `lcnt:clear/0'.

-type lock() :: #{
    name := atom(),
    type := atom(),
    instances := pos_integer(),
    tries := non_neg_integer(),
    collisions := non_neg_integer(),
    waited := float(),
    share := float()
}.
%% All locks of a name and type together, as {@link //tools/lcnt:conflicts/0} has them. `tries': attempts to take one.
%% `collisions': attempts that found it taken. `waited': seconds that threads have waited. `share': `waited' divided by
%% the counted time.

%% @doc Returns the locks, those with the longest waits first. It copies all entries once. A VM that counts the locks
%% of processes and ports has entries for each of them.
-spec all(weir_scope_facts:ask()) -> locks().
all(Ask) ->
    case Ask(erlang, system_info, [lock_counting]) of
        true -> together(Ask(erts_debug, lcnt_collect, []));
        false -> not_counted
    end.

together(Counts) ->
    {duration, Duration} = lists:keyfind(duration, 1, Counts),
    {locks, Locks} = lists:keyfind(locks, 1, Counts),
    Seconds = seconds(Duration),
    Sums = lists:foldl(
        fun({Name, _Id, Type, Places}, Known) ->
            {Tries, Collisions, Waited} = lists:foldl(fun place/2, {0, 0, 0.0}, Places),
            Add = fun({Instances, T, C, W}) -> {Instances + 1, T + Tries, C + Collisions, W + Waited} end,
            maps:update_with({Name, Type}, Add, {1, Tries, Collisions, Waited}, Known)
        end,
        #{},
        Locks
    ),
    All = [lock(Key, Sum, Seconds) || {Key, Sum} <- lists:sort(maps:to_list(Sums))],
    Longest = fun(#{waited := One}, #{waited := Other}) -> One >= Other end,
    #{seconds => Seconds, locks => lists:sort(Longest, All)}.

%% A place in the VM's source where the lock is taken. A read-write lock has two entries. OTP adds a histogram of the
%% times.
place(Place, {Tries, Collisions, Waited}) ->
    {T, C, {Seconds, Nanoseconds, _Times}} = element(2, Place),
    {Tries + T, Collisions + C, Waited + seconds({Seconds, Nanoseconds})}.

seconds({Seconds, Nanoseconds}) -> Seconds + Nanoseconds / 1.0e9.

lock({Name, Type}, {Instances, Tries, Collisions, Waited}, Seconds) ->
    #{
        name => Name, type => Type, instances => Instances, tries => Tries, collisions => Collisions, waited => Waited,
        share => case Seconds > 0 of true -> Waited / Seconds; false -> 0.0 end
    }.
