%% Compares figures with those of the kernel, or with a load of known size.
-module(weir_scope_figures_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").
-include_lib("weir_testing/include/weir_test.hrl").

-export([all/0, groups/0, suite/0, init_per_suite/1, end_per_suite/1, init_per_testcase/2, end_per_testcase/2]).
-export([
    cpu_by_the_kernel/1,
    collections/1,
    ready_to_run/1,
    sockets_by_what_was_sent/1,
    relays_by_what_was_sent/1,
    callbacks_of_known_length/1,
    binaries_by_holder/1,
    collections_by_who_collects/1,
    idle_since_data_moved/1,
    who_listens_by_what_came/1
]).
-export([peers_of_relays/1]).

-import(weir_scope_distribution, [bring/2, application/2, load/3, next/1]).
-import(weir_test_wait, [wait_until/1]).

suite() ->
    [{timetrap, {minutes, 5}}].

all() ->
    [{group, all}].

groups() ->
    [
        {all, [parallel], [
            cpu_by_the_kernel,
            collections,
            ready_to_run,
            sockets_by_what_was_sent,
            relays_by_what_was_sent,
            callbacks_of_known_length,
            binaries_by_holder,
            collections_by_who_collects,
            idle_since_data_moved,
            peers_of_relays,
            who_listens_by_what_came
        ]}
    ].

init_per_suite(Config) ->
    [{started, weir_scope_distribution:start("weir_scope_figures")} | Config].

end_per_suite(Config) -> weir_scope_distribution:stop(?config(started, Config)).

init_per_testcase(_Case, Config) ->
    {Peer, Node} = weir_scope_distribution:node(["+S", "2"]),
    _ = bring(Peer, weir_scope_load),
    [{peer, Peer}, {node, Node} | Config].

end_per_testcase(_Case, Config) ->
    catch peer:stop(?config(peer, Config)),
    ok.

view(Config) -> view(Config, true).

view(Config, Load) -> weir_scope_distribution:view(?config(node, Config), Load).

%% Compares the CPU time of all threads with the kernel's count for the process. The kernel counts in hundredths of a
%% second. It is read while the node is idle, before and after it was busy.
cpu_by_the_kernel(Config) ->
    View = view(Config),
    {Begin, _, Samples} = samples_of(fun() -> cpu(Config) end, fun(Begin) -> uses(Config, Begin) end, View),
    Used = cpu(Config) - Begin,
    Seen = lists:sum([
        Over * Cpu
     || #{over := Over, schedulers := Schedulers, threads := Threads} <- Samples, #{cpu := Cpu} <- Schedulers ++ Threads
    ]),
    ct:log("~p of ~p seconds", [Seen, Used]),
    ?assert(Used > 1.0),
    ?assert(abs(Seen - Used) < 0.15 + 0.1 * Used, {Seen, Used}),
    ok = weir_scope:close(View).

%% Keeps the node busy until it has used enough CPU time, which takes longer on a busy machine.
uses(Config, Begin) ->
    Busy = erlang:spawn(?config(node, Config), weir_scope_load, busy_for, [self(), 0.9, 2]),
    receive {Busy, _} -> ok end,
    case cpu(Config) - Begin of
        Used when Used > 1.0 -> ok;
        _ -> uses(Config, Begin)
    end.

cpu(Config) ->
    {ok, Stat} = file:read_file(
        "/proc/" ++ weir_scope_distribution:call(?config(peer, Config), os, getpid, []) ++ "/stat"
    ),
    %% The name in parentheses may contain spaces. User and system time are fields 14 and 15.
    [_, Rest] = string:split(Stat, ")", trailing),
    [User, System] = [binary_to_integer(Field) || Field <- lists:sublist(string:lexemes(Rest, " "), 12, 2)],
    (User + System) / 100.

%% The requested collections, and those of the node's own processes.
collections(Config) ->
    View = view(Config),
    {ok, #{activity := #{totals := #{collections := Before}}}} = weir_scope:sample(View),
    ok = erpc:call(?config(node, Config), weir_scope_load, collect, [5000]),
    _ = next(View),
    #{activity := #{totals := #{collections := After}}} = next(View),
    ct:log("~p", [After - Before]),
    ?assert(After - Before >= 5000),
    ?assert(After - Before < 10_000),
    ok = weir_scope:close(View).

%% Twenty processes that never wait, on one scheduler: one of them runs. The VM may migrate some, and the process that
%% asks runs too.
ready_to_run(Config) ->
    View = view(Config),
    _ = [
        erlang:spawn_opt(?config(node, Config), weir_scope_load, busy, [1.0], [{scheduler, 1}])
     || _ <- lists:seq(1, 20)
    ],
    _ = ?waitMatch([_, _], begin
        #{schedulers := Schedulers, activity := #{counts := #{run_queue := All}}} = next(View),
        [
            Seen
         || Seen <- [All | [Queue || #{kind := normal, number := 1, run_queue := Queue} <- Schedulers]],
            Seen >= 15,
            Seen =< 25
        ]
    end),
    ok = weir_scope:close(View).

%% All is sent between both readings. Otherwise this tries again, because a busy machine may be too slow. The time
%% between the readings, by which the rate is computed, is at least the requested time and at most the time that the
%% call took.
between_looks(Config, Load, Look, Send) -> between_looks(Config, Load, Look, Send, 1).

between_looks(Config, Load, Look, Send, Tries) ->
    Self = self(),
    Begin = erlang:monotonic_time(millisecond),
    Asker = spawn_link(fun() -> Self ! {self(), Look(#{over => 3000, most => 100})} end),
    Looks = fun() ->
        case Load of
            true -> erpc:call(?config(node, Config), weir_scope_load, looks, [anybody]);
            false -> weir_scope_load:looks(Asker)
        end
    end,
    wait_until(Looks),
    Sent = Send(),
    InTime = Looks(),
    receive
        {Asker, {ok, Top}} when InTime ->
            {Top, Sent, 3.0, (erlang:monotonic_time(millisecond) - Begin) / 1000 + 0.01, Tries};
        {Asker, {ok, _}} ->
            between_looks(Config, Load, Look, Send, Tries + 1)
    end.

is_between(Rate, Sent, Least, Most) -> Rate =< Sent / Least andalso Rate >= Sent / Most.

sockets_by_what_was_sent(Config) ->
    application(?config(peer, Config), weir),
    Pid = load(?config(node, Config), relay, []),
    View = view(Config),
    {Top, {Asked, Answered}, Least, Most, _} = between_looks(
        Config, true, fun(Options) -> weir_scope:sockets(View, Options) end, fun() -> sent(Pid) end
    ),
    ct:log("~p", [Top]),
    %% The ends are sockets of OTP. The sockets between them belong to the relay.
    [_, _] = Ends = [Socket || #{kind := port, owner := Owner, in := In} = Socket <- Top, Owner =:= Pid, In > 0],
    %% The round-trip time over loopback is below a second.
    [?assert(Rtt > 0 andalso Rtt < 1_000_000, Rtt) || #{rtt_us := Rtt, resent := _} <- Ends],
    ?assertEqual(2, length([Rtt || #{rtt_us := Rtt} <- Ends])),
    [#{in := ServerIn, out := ServerOut}] = [Socket || #{in := In, out := Out} = Socket <- Ends, Out > In],
    [#{in := ClientIn, out := ClientOut}] = [Socket || #{in := In, out := Out} = Socket <- Ends, Out < In],
    [
        ?assert(is_between(Rate, Bytes, Least, Most), {Rate, Bytes, Least, Most})
     || {Rate, Bytes} <- [{ServerIn, Asked}, {ServerOut, Answered}, {ClientIn, Answered}, {ClientOut, Asked}]
    ],
    ok = weir_scope:close(View).

sent(Pid) ->
    Pid ! {self(), 100, 10_000},
    receive {Pid, Bytes} -> Bytes end.

relays_by_what_was_sent(Config) ->
    application(?config(peer, Config), weir),
    Pid = load(?config(node, Config), relay, []),
    lists:foldl(
        fun(Load, Sent) ->
            View = view(Config, Load),
            {Top, {Asked, Answered}, Least, Most, Tries} = between_looks(
                Config, Load, fun(Options) -> weir_scope:relays(View, Options) end, fun() -> sent(Pid) end
            ),
            ct:log("~p", [Top]),
            [
                #{
                    owner := Pid,
                    in := In,
                    out := Out,
                    age := Age,
                    idle := Idle,
                    replies := Replies,
                    first_byte_us := _,
                    p50 := Median,
                    p99 := P99
                }
            ] = Top,
            [
                ?assert(is_between(Rate, Bytes, Least, Most), {Rate, Bytes, Least, Most})
             || {Rate, Bytes} <- [{In, Asked}, {Out, Answered}]
            ],
            ?assertEqual(100 * (Sent + Tries), Replies),
            ?assert(Median =< P99),
            ?assert(Idle < Age),
            ?assertEqual(
                {error, {bad_option, by, queue, {one_of, [age, bytes, idle, in, out]}}},
                weir_scope:relays(View, #{by => queue})
            ),
            {ok, #{top := [_]} = Data} = weir_scope_page:look(weir, age, View),
            ?assertMatch([{text, [_ | _]} | _], weir_scope_page:page(weir, Data, [])),
            ok = weir_scope:close(View),
            Sent + Tries
        end,
        0,
        [true, false]
    ).

%% Forty callbacks of five milliseconds each: none takes less, and together they take at most the time of their
%% samples.
callbacks_of_known_length(Config) ->
    application(?config(peer, Config), weir),
    {ok, Port} = weir_scope_distribution:call(?config(peer, Config), weir_scope_load, listen_slowly, [5]),
    [
        begin
            View = view(Config, Load),
            Reactors = fun() ->
                {ok, #{weir := #{reactors := Now}}} = weir_scope:sample(View),
                Now
            end,
            {Before, Took, Samples} = samples_of(
                Reactors, fun(_) -> ok = weir_scope_load:requests(Port, 1, 40) end, View
            ),
            #{weir := #{reactors := After}} = lists:last(Samples),
            Sum = fun(Key, Some) ->
                lists:sum([maps:get(Key, Totals) || #{module := weir_scope_load, totals := Totals} <- Some])
            end,
            Callbacks = Sum(callbacks, After) - Sum(callbacks, Before),
            Ns = Sum(callback_ns, After) - Sum(callback_ns, Before),
            %% The start and the end of the connection have callbacks too.
            ?assert(Callbacks >= 41 andalso Callbacks =< 42, Callbacks),
            ?assert(Ns >= 200_000_000 andalso Ns =< Took + 20_000_000, {Ns, Took}),
            Busy = lists:sum([
                Over * Part
             || #{over := Over, weir := #{reactors := Some}} <- Samples,
                #{module := weir_scope_load, busy := Part} <- Some
            ]),
            ?assert(abs(Busy - Ns / 1.0e9) < 0.02, {Busy, Ns}),
            Measured = [
                Figures
             || #{weir := #{reactors := Some}} <- Samples, #{latency := #{count := Count} = Figures} <- Some, Count > 0
            ],
            ?assertMatch([_ | _], Measured),
            [
                ?assert(Median >= 4600 andalso Most * 1000 =< Took, {Median, Most})
             || #{med := Median, max := Most} <- Measured
            ],
            ok = weir_scope:close(View)
        end
     || Load <- [true, false]
    ].

%% Returns the value of `Before' at a sample, the nanoseconds until the fun was done and sampled, and all samples since
%% then. If a busy machine misses a sample, this starts again.
samples_of(Before, Fun, View) ->
    Self = self(),
    First = next(View),
    Was = Before(),
    Begin = erlang:monotonic_time(nanosecond),
    Doing = spawn_link(fun() -> ok = Fun(Was), Self ! {self(), done} end),
    Samples = samples_until(Doing, View),
    Took = erlang:monotonic_time(nanosecond) - Begin,
    case follow([First | Samples]) of
        true -> {Was, Took, Samples};
        false -> samples_of(Before, Fun, View)
    end.

samples_until(Doing, View) ->
    receive {Doing, done} -> [next(View) || _ <- [1, 2]]
    after 0 -> [next(View) | samples_until(Doing, View)]
    end.

%% Returns whether each sample begins where the one before ends.
follow(Samples) ->
    lists:all(
        fun({#{at := Before}, #{at := At, over := Over}}) -> At - Before < 1500 * Over end,
        lists:zip(lists:droplast(Samples), tl(Samples))
    ).

%% Five hundred minor collections between both readings.
collections_by_who_collects(Config) ->
    Pid = load(?config(node, Config), collects, []),
    View = view(Config),
    Look = fun(Options) -> weir_scope:processes(View, Options#{by => collections}) end,
    {[#{pid := First, collections := Rate} | _], Times, Least, Most, _} = between_looks(Config, true, Look, fun() ->
        Pid ! {self(), 500},
        receive
            {Pid, Number} -> Number
        end
    end),
    ?assertEqual(Pid, First),
    %% The process has few other collections.
    ?assert(Rate =< 1.1 * Times / Least andalso Rate >= Times / Most, {Rate, Times, Least, Most}),
    ok = weir_scope:close(View).

%% One pair of sockets sends bytes all the time, the other sent bytes only when it was made.
idle_since_data_moved(Config) ->
    Begin = erlang:monotonic_time(millisecond),
    Idle = load(?config(node, Config), sockets, [1]),
    Talks = load(?config(node, Config), chatter, [[inet]]),
    %% The times must differ by more than a tick of the kernel, which counts in ticks.
    timer:sleep(500),
    [
        begin
            View = view(Config, Load),
            {ok, Sockets} = weir_scope:sockets(View, #{by => idle, over => 10, most => 100}),
            Of = fun(Owner) -> [Seconds || #{owner := Same, idle := Seconds, out := _} <- Sockets, Same =:= Owner] end,
            Since = (erlang:monotonic_time(millisecond) - Begin) / 1000,
            %% Listening sockets have no peer. The kernel counts in ticks.
            ?assertMatch([_, _], Of(Idle)),
            [?assert(Seconds > 0.4 andalso Seconds < Since + 0.1, {Seconds, Since}) || Seconds <- Of(Idle)],
            [?assert(Seconds < lists:min(Of(Idle))) || Seconds <- Of(Talks)],
            ok = weir_scope:close(View)
        end
     || Load <- [true, false]
    ].

%% The peers of a relay are the other ends of its two connections.
peers_of_relays(Config) ->
    application(?config(peer, Config), weir),
    Pid = load(?config(node, Config), relay, []),
    View = view(Config),
    {ok, [#{owner := Pid, peers := {Client, Server}}]} = weir_scope:relays(View, #{by => age, over => 10}),
    %% They are among the idle sockets after a tick of the kernel.
    wait_until(fun() ->
        {ok, Sockets} = weir_scope:sockets(View, #{by => idle, over => 10, most => 100}),
        lists:sort([Local || #{kind := port, owner := Owner, local := Local, peer := _} <- Sockets, Owner =:= Pid]) =:=
            lists:sort([Client, Server])
    end),
    ok = weir_scope:close(View).

%% A process that holds ten binaries of a megabyte.
binaries_by_holder(Config) ->
    Pid = load(?config(node, Config), hold_binaries, [10, 1_000_000]),
    [
        begin
            View = view(Config, Load),
            {ok, [#{pid := Pid, binaries := Bytes, memory := Memory} | _]} = weir_scope:processes(View, #{
                by => binaries, over => 10
            }),
            ct:log("~p", [Bytes]),
            ?assert(abs(Bytes - 10_000_000) < 100_000, Bytes),
            ?assert(Memory < 1_000_000),
            ok = weir_scope:close(View)
        end
     || Load <- [true, false]
    ].

%% No process accepts. The kernel keeps some connections waiting and drops the others, whose clients give up.
who_listens_by_what_came(Config) ->
    [who_listens(Backend, Kind, Config) || {Backend, Kind} <- [{inet, port}, {socket, socket}]].

who_listens(Backend, Kind, Config) ->
    Pid = load(?config(node, Config), listen_only, [3, Backend]),
    Pid ! {port, self()},
    Port =
        receive
            {Pid, Number} -> Number
        end,
    Self = self(),
    Clients = [
        spawn_link(fun() ->
            Self ! {tried, gen_tcp:connect({127, 0, 0, 1}, Port, [], 3000)},
            receive
                enough -> ok
            end
        end)
     || _ <- lists:seq(1, 8)
    ],
    Came = length([
        ok
     || _ <- Clients,
        ok <- [
            receive
                {tried, {Tried, _}} -> Tried
            end
        ]
    ]),
    ct:log("~p of 8", [Came]),
    ?assert(Came < 8),
    [
        begin
            View = view(Config, Load),
            {ok, Listeners} = weir_scope:listeners(View),
            ct:log("~p", [Listeners]),
            [
                #{
                    kind := Kind,
                    owner := Owner,
                    ip := {127, 0, 0, 1},
                    waiting := Waiting,
                    backlog := 3,
                    dropped := Dropped
                }
            ] =
                [Listener || #{port := Same} = Listener <- Listeners, Same =:= Port],
            %% A connection whose client has just given up waits too.
            ?assert(Waiting >= Came andalso Waiting < 8, {Came, Waiting}),
            %% gen_tcp has a process for each `socket', which is its owner.
            ?assert(Owner =:= Pid orelse Kind =:= socket),
            ?assert(Dropped >= 8 - Waiting),
            ?assertMatch([_ | _], [Listener || #{kind := distribution, dropped := 0} = Listener <- Listeners]),
            ok = weir_scope:close(View)
        end
     || Load <- [true, false]
    ],
    [Client ! enough || Client <- Clients].
