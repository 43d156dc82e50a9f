%% @private
%% @doc The page about locks: lock waits in Weir, and in the VM if it counts them.
-module(weir_scope_page_locks).

-export([page/2]).

-import(weir_scope_figure, [percent/1, count/1, seconds/1]).

%% @doc Returns the page for the sample of Weir and the lock counts of the VM.
-spec page(weir_scope_engine:engine() | none, weir_scope_locks:locks()) -> [weir_scope_page:block()].
page(Weir, Locks) -> weir(Weir) ++ vm(Locks).

weir(#{locks := [_ | _] = Tables, pollsets := Pollsets}) ->
    Waits =
        [{["of ", atom_to_list(Table)], Rate, Total} || #{table := Table, rate := Rate, total := Total} <- Tables] ++
            [
                {io_lib:format("of pollset ~b's ready list", [Number]), Rate, Total}
             || #{pollset := Number, contended := Rate, totals := #{contended := Total}} <- Pollsets
            ],
    [
        {table, [{lock, "Weir's locks", left}, {waits, "waits/s", right}, {total, "waits", right}], [
            [{0, Lock}, {Rate, count(Rate)}, {Total, count(Total)}]
         || {Lock, Rate, Total} <- Waits
        ]},
        {text, [""]}
    ];
weir(_) ->
    [{text, ["Weir does not run on this node.", ""]}].

vm(not_counted) ->
    [{text, ["This VM does not count its own locks. A VM that was built for lock counting does: erl -emu_type lcnt."]}];
vm(#{seconds := Seconds, locks := Locks}) ->
    [
        {text, [["Locks of the VM, counted for ", seconds(Seconds)], ""]},
        {table,
            [
                {name, "lock", left},
                {type, "type", left},
                {instances, "instances", right},
                {tries, "tries", right},
                {collisions, "collisions", right},
                {part, "of tries", right},
                {waited, "waited ms", right},
                {share, "of the time", right}
            ],
            [
                [
                    {Name, atom_to_list(Name)},
                    {Type, atom_to_list(Type)},
                    {Instances, count(Instances)},
                    {Tries, count(Tries)},
                    {Collisions, count(Collisions)},
                    {0, percent(Collisions / max(1, Tries))},
                    {Waited, io_lib:format("~.3f", [Waited * 1000])},
                    {Share, percent(Share)}
                ]
             || #{
                    name := Name,
                    type := Type,
                    instances := Instances,
                    tries := Tries,
                    collisions := Collisions,
                    waited := Waited,
                    share := Share
                } <- Locks
            ]}
    ].
