%% @private
%% @doc The page about Weir: listeners and the limits that they have reached, reactors, relays, and the counters of
%% `weir_http' and `weir_pubsub'.
-module(weir_scope_page_weir).

-export([page/2]).

-import(weir_scope_figure, [percent/1, count/1, bytes/1, seconds/1, address/1]).

%% @doc Returns the page for a sample and the top relays.
-spec page(weir_scope_engine:engine() | none, [weir_scope_top:relay()]) -> [weir_scope_page:block()].
page(none, _Relays) ->
    [{text, ["Weir does not run on this node."]}];
page(#{listeners := Listeners} = Weir, Relays) ->
    Parts = [
        {Listeners, fun listeners/1},
        {maps:get(reactors, Weir, []), fun reactors/1},
        {counted(Weir), fun counters/1},
        {Relays, fun relays/1}
    ],
    [{text, counts(Weir) ++ [""]} | lists:append([Table(Rows) ++ [{text, [""]}] || {[_ | _] = Rows, Table} <- Parts])].

counts(#{counts := #{relays := Relays, groups := Groups}, listeners := Listeners} = Weir) ->
    [
        io_lib:format("~b listeners, ~b reactors, ~b relays, ~b groups", [
            length(Listeners), length(maps:get(reactors, Weir, [])), Relays, Groups
        ])
    ];
counts(#{listeners := Listeners}) ->
    [io_lib:format("~b listeners", [length(Listeners)])].

%% `accepted' and the columns after it are per second.
listeners(Listeners) ->
    [
        {table,
            [
                {name, "listener", left},
                {port, "port", right},
                {connections, "open", right},
                {most, "limit", right},
                {waiting, "waiting", right},
                {backlog, "backlog", right},
                {accepted, "accepted", right},
                {overload, "overload", right},
                {paused, "paused", right},
                {denied, "denied", right},
                {crowded, "crowded", right},
                {failed, "failed", right}
            ],
            [
                [
                    {Name, io_lib:format("~0tp", [Name])},
                    whole(port, Listener),
                    whole(connections, Listener),
                    whole(max_connections, Listener),
                    whole(waiting, Listener),
                    whole(backlog, Listener),
                    whole(accepted, Listener),
                    whole(overload, Listener),
                    figure(maps:get(full_pauses, Listener, 0) + maps:get(rate_pauses, Listener, 0)),
                    whole(denied, Listener),
                    whole(crowded, Listener),
                    whole(failed_handshakes, Listener)
                ]
             || #{name := Name} = Listener <- Listeners
            ]}
    ].

%% Only reactors that measure have quantiles.
reactors(Reactors) ->
    [
        {table,
            [
                {number, "reactor", right},
                {scheduler, "scheduler", right},
                {module, "module", left},
                {callbacks, "callbacks", right},
                {busy, "busy", right},
                {mean, "mean us", right},
                {med, "p50 us", right},
                {max99, "p99 us", right},
                {max, "max us", right}
            ],
            [
                [
                    {Number, integer_to_list(Number)},
                    {Scheduler, integer_to_list(Scheduler)},
                    {Module, atom_to_list(Module)},
                    {Callbacks, count(Callbacks)},
                    {Busy, percent(Busy)},
                    {Mean, io_lib:format("~.1f", [Mean])}
                    | [measured(Key, maps:get(latency, Reactor, none)) || Key <- [med, '99_max', max]]
                ]
             || #{
                    pollset := Number,
                    scheduler := Scheduler,
                    module := Module,
                    callbacks := Callbacks,
                    busy := Busy,
                    mean_us := Mean
                } = Reactor <- Reactors
            ]}
    ].

measured(_Key, none) -> {-1, "-"};
measured(Key, Figures) -> {maps:get(Key, Figures), io_lib:format("~.1f", [maps:get(Key, Figures)])}.

%% Sums over all listeners.
counted(Weir) ->
    [
        {Name, lists:sum([Rate || #{rate := Rate} <- Values]), Total}
     || #{name := Name, values := Values} <- maps:get(products, Weir, []),
        Total <- [lists:sum([Sum || #{total := Sum} <- Values])],
        Total > 0
    ].

counters(Counters) ->
    [
        {table, [{counter, "counter", left}, {rate, "a second", right}, {total, "total", right}], [
            [{Name, Name}, figure(Rate), figure(Total)]
         || {Name, Rate, Total} <- Counters
        ]}
    ].

relays(Relays) ->
    [
        {table,
            [
                {relay, "relay", left},
                {in, "in/s", right},
                {out, "out/s", right},
                {age, "age", right},
                {idle, "idle", right},
                {replies, "replies", right},
                {med, "p50 us", right},
                {max99, "p99 us", right},
                {client, "client", left},
                {server, "server", left},
                {pollset, "pollset", right},
                {owner, "owner", left},
                {bytes, "", left}
            ],
            [
                [
                    {0, io_lib:format("~0p", [Relay])},
                    {In, bytes(In)},
                    {Out, bytes(Out)},
                    {Age, seconds(Age)},
                    {Idle, seconds(Idle)},
                    figure(Replies),
                    quantile(p50, Data),
                    quantile(p99, Data),
                    {0, address(Client)},
                    {0, address(Server)},
                    {Pollset, integer_to_list(Pollset)},
                    {0, io_lib:format("~0p", [Owner])},
                    {In + Out, ""}
                ]
             || #{
                    relay := Relay,
                    in := In,
                    out := Out,
                    age := Age,
                    idle := Idle,
                    replies := Replies,
                    pollset := Pollset,
                    owner := Owner
                } = Data <- Relays,
                {Client, Server} <- [maps:get(peers, Data, {none, none})]
            ]}
    ].

quantile(Key, Relay) ->
    case Relay of
        #{Key := Microseconds} -> figure(Microseconds);
        _ -> {-1, "-"}
    end.

whole(Key, Listener) ->
    case Listener of
        #{Key := Value} when is_number(Value) -> figure(Value);
        _ -> {-1, "-"}
    end.

figure(Value) -> {Value, count(Value)}.
