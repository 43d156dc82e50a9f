%% Equal settings of connections share one term.
-module(weir_http_shared_tests).

-include_lib("eunit/include/eunit.hrl").

equal_terms_are_one_test() ->
    First = weir_http_shared:term(a, term(1)),
    ?assert(erts_debug:same(First, weir_http_shared:term(a, term(1)))),
    ?assertEqual(term(2), weir_http_shared:term(a, term(2))),
    ?assertEqual(term(1), weir_http_shared:term(b, term(1))),
    ?assertEqual(term(2), weir_http_shared:term(a, term(2))),
    %% Only the last term is kept.
    ?assertNot(erts_debug:same(First, weir_http_shared:term(a, term(1)))).

%% Built at runtime: literals would be shared anyway.
term(N) -> list_to_tuple(lists:duplicate(3, N)).

%% `protocol' and `fields' belong to one handshake.
settings_of_websockets_test() ->
    Settings = fun(Protocol) ->
        weir_http_websocket_options:settings(#{max_message => 1000, deflate => true, protocol => Protocol})
    end,
    ?assert(erts_debug:same(Settings(<<"a">>), Settings(<<"b">>))).
