%% Ten thousand sequences of operations on stock sockets and on Weir; WEIR_SOAK_SEQUENCES in the environment makes it
%% fewer or more.
-module(weir_parity_soak_SUITE).

-compile([export_all, nowarn_export_all]).

-define(SEQUENCES, 10000).

suite() ->
    [{timetrap, {minutes, 60}}].

all() ->
    [weir_agrees_with_stock].

init_per_suite(Config) ->
    {ok, _} = application:ensure_all_started(weir),
    true = weir_nif:available(),
    Config.

end_per_suite(_Config) ->
    ok.

weir_agrees_with_stock(_Config) ->
    [] = prop_parity:search([], [{tcp_module, weir_tcp}], how_many()).

how_many() ->
    list_to_integer(os:getenv("WEIR_SOAK_SEQUENCES", integer_to_list(?SEQUENCES))).
