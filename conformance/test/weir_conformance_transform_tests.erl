-module(weir_conformance_transform_tests).

-include_lib("eunit/include/eunit.hrl").

calls_of_gen_tcp_that_open_a_socket_go_to_the_stand_in_test() ->
    ?assertEqual("f() -> weir_conformance_gen_tcp:listen(0, [inet]).", rewritten("f() -> gen_tcp:listen(0, [inet]).")),
    ?assertEqual(
        "f() -> fun weir_conformance_gen_tcp:connect/3.", rewritten("f() -> fun gen_tcp:connect/3.")
    ).

other_calls_stay_test() ->
    ?assertEqual("f(S) -> gen_tcp:recv(S, 0).", rewritten("f(S) -> gen_tcp:recv(S, 0).")).

a_guard_for_ports_takes_sockets_of_weir_test() ->
    {ok, Module, Beam} = compile:forms(
        weir_conformance_transform:parse_transform(
            [
                form("-module(weir_conformance_guarded)."),
                form("-export([f/1])."),
                form("f(S) when is_port(S) -> yes; f(_) -> no.")
            ],
            []
        )
    ),
    {module, Module} = code:load_binary(Module, "", Beam),
    Answers = [
        Module:f(S)
     || S <- [{'$inet', weir_tcp, 1}, {'$inet', gen_tcp_socket, 1}, {a, b}, {}, port, hd(erlang:ports())]
    ],
    true = code:delete(Module),
    ?assertEqual([yes, no, no, no, no, yes], Answers).

rewritten(Text) ->
    [Form] = weir_conformance_transform:parse_transform([form(Text)], []),
    string:trim(re:replace(erl_pp:form(Form), "\\s+", " ", [global, {return, list}])).

form(Text) ->
    {ok, Tokens, _} = erl_scan:string(Text),
    {ok, Form} = erl_parse:parse_form(Tokens),
    Form.
