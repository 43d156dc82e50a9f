%% Properties of balancers and of the parsers of first bytes, and hellos of real clients.
-module(weir_proxy_property_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

suite() -> [{timetrap, {minutes, 5}}].

all() ->
    [
        schedule,
        ring_shares,
        ring_movement,
        ring_slow_start,
        ring_size,
        bounded_load,
        least_connections,
        untried,
        hello_in_pieces,
        any_bytes,
        hellos_of_clients,
        changed_hello
    ].

schedule(_Config) -> holds(prop_proxy:prop_schedule(), 100).
ring_shares(_Config) -> holds(prop_proxy:prop_ring_shares(), 20).
ring_movement(_Config) -> holds(prop_proxy:prop_ring_movement(), 20).
ring_slow_start(_Config) -> holds(prop_proxy:prop_ring_slow_start(), 15).

%% The size is limited for any number of servers and any weights, because the ring is built at each change of a server.
ring_size(_Config) ->
    Size = fun(Count, Weight) ->
        tuple_size(element(1, weir_proxy_ring:new([{integer_to_binary(N), Weight} || N <- lists:seq(1, Count)])))
    end,
    ?assertEqual(100 * 128, Size(100, 1)),
    [?assert(Size(Count, Weight) =< 32768 + Count) || {Count, Weight} <- [{10, 256}, {100, 16}, {500, 1}, {500, 256}]].

bounded_load(_Config) -> holds(prop_proxy:prop_bounded_load(), 100).
least_connections(_Config) -> holds(prop_proxy:prop_least_connections(), 100).
untried(_Config) -> holds(prop_proxy:prop_untried(), 500).
hello_in_pieces(_Config) -> holds(prop_proxy:prop_hello_in_pieces(), 300).
any_bytes(_Config) -> holds(prop_proxy:prop_any_bytes(), 500).
%% Cut at every byte, and in records of every size. Three clients send a key share of X25519MLKEM768, which needs more
%% than one segment.
hellos_of_clients(_Config) ->
    Parse = fun weir_proxy_client_hello:parse/1,
    Expected = {ok, #{sni => <<"one.example.org">>, alpn => [<<"h2">>, <<"http/1.1">>]}},
    [
        begin
            ?assertEqual({Client, Expected}, {Client, Parse(Hello)}),
            Size = byte_size(Hello),
            ?assertEqual([more], lists:usort([Parse(binary:part(Hello, 0, Cut)) || Cut <- lists:seq(0, Size - 1)])),
            <<22, 3, Minor, _:16, Message/binary>> = Hello,
            ?assertEqual(
                [Expected],
                lists:usort([Parse(prop_proxy:records_of(Record, Minor, Message)) || Record <- lists:seq(1, Size)])
            )
        end
     || {Client, Hello} <- prop_proxy:hellos()
    ],
    Share = <<16#11ec:16, 1216:16>>,
    ?assertEqual(["chromium", "go", "rustls"], [
        Client
     || {Client, Hello} <- prop_proxy:hellos(), binary:match(Hello, Share) =/= nomatch
    ]).

changed_hello(_Config) -> holds(prop_proxy:prop_changed_hello(), 500).

holds(Property, Times) ->
    case proper:quickcheck(Property, [{numtests, Times}, long_result, quiet, {on_output, fun ct:log/2}]) of
        true -> ok;
        Counterexample -> ct:fail({counterexample, Counterexample})
    end.
