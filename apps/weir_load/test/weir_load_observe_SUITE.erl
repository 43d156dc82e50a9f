%% What a load reports about the process or node that it observes.
-module(weir_load_observe_SUITE).

-include_lib("stdlib/include/assert.hrl").

-export([all/0, suite/0, init_per_suite/1, end_per_suite/1]).
-export([
    a_process_is_observed/1,
    a_node_is_observed/1,
    a_node_without_weir_is_observed/1,
    a_node_that_goes_is_observed_no_more/1
]).

-import(weir_load_measure, [at_once/0, open_loop/3]).

-define(SECOND, 1_000_000_000).

suite() ->
    [{timetrap, {minutes, 5}}].

all() ->
    [
        a_process_is_observed,
        a_node_is_observed,
        a_node_without_weir_is_observed,
        a_node_that_goes_is_observed_no_more
    ].

init_per_suite(Config) ->
    {ok, _} = application:ensure_all_started(weir),
    Config.

end_per_suite(_Config) ->
    ok.

a_process_is_observed(_Config) ->
    Plan = #{observe => list_to_integer(os:getpid())},
    #{seconds := Seconds} = open_loop(at_once(), [{constant, 200, 2 * ?SECOND}], Plan),
    %% Each second of the window.
    [
        begin
            #{server := #{cpu := Cpu, rss_bytes := Rss}} = Second,
            ?assert(Cpu >= 0),
            ?assert(Rss > 1_000_000)
        end
     || Second <- lists:sublist(Seconds, 2)
    ],
    %% Process ids end before 2^22.
    ?assertMatch({error, _}, weir_load_observer:new(1 bsl 23)).

%% This node serves and is observed, as another node would be.
a_node_is_observed(_Config) ->
    #{seconds := Seconds} = open_loop(at_once(), [{constant, 200, 3 * ?SECOND}], #{observe => node()}),
    Observed = [Server || #{server := Server} <- Seconds],
    #{cpu := Cpu, rss_bytes := Rss, schedulers := Schedulers, pollsets := [_ | _] = Pollsets} = hd(Observed),
    ?assert(Cpu >= 0),
    ?assert(Rss > 1_000_000),
    ?assertEqual(erlang:system_info(schedulers_online), length(Schedulers)),
    [?assert(Busy >= 0 andalso Busy =< 1) || Busy <- Schedulers],
    %% The pollsets of schedulers, and of reactors if there are any.
    ?assert(length(Pollsets) >= length(weir:pollsets())),
    [
        ?assertMatch(#{polls := _, events := _, sockets := _, read_bytes := _, asleep := _}, Pollset)
     || Pollset <- Pollsets
    ],
    %% The server's sockets are OTP's. Only the generator's are Weir's; their pollsets begin with the load and have
    %% figures from the second observation on.
    Events = lists:sum([maps:get(events, Pollset) || #{pollsets := Each} <- Observed, Pollset <- Each]),
    ?assert(Events > 0).

a_node_without_weir_is_observed(_Config) ->
    with_nodes(fun(Us, _Other, Them) ->
        {ok, Observer} = peer:call(Us, weir_load_observer, new, [Them]),
        {ok, Observation, _} = peer:call(Us, weir_load_observer, observe, [Observer]),
        ?assertMatch(#{cpu := _, rss_bytes := Rss} when Rss > 1_000_000, Observation),
        ?assertNot(is_map_key(pollsets, Observation))
    end).

a_node_that_goes_is_observed_no_more(_Config) ->
    with_nodes(fun(Us, Other, Them) ->
        {ok, Observer} = peer:call(Us, weir_load_observer, new, [Them]),
        ok = peer:stop(Other),
        ?assertMatch({gone, _}, peer:call(Us, weir_load_observer, observe, [Observer])),
        ?assertMatch({error, _}, peer:call(Us, weir_load_observer, new, [Them]))
    end).

%% Two nodes that can connect to each other. The first has our code.
with_nodes(Test) ->
    Start = fun(Arguments) ->
        {ok, Peer, Node} = peer:start(#{
            name => peer:random_name(observed), host => "localhost", connection => standard_io,
            args => ["-setcookie", "observed", "-kernel", "inet_dist_use_interface", "{127,0,0,1}" | Arguments]
        }),
        {Peer, Node}
    end,
    {Us, _} = Start(["-pa" | code:get_path()]),
    {Other, Them} = Start([]),
    true = peer:call(Us, net_kernel, connect_node, [Them]),
    try
        Test(Us, Other, Them)
    after
        %% The test may have stopped the other node.
        [peer:stop(Peer) || Peer <- [Us, Other], is_process_alive(Peer)]
    end.
