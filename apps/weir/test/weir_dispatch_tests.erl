%% The functions that OTP calls on the module of a socket, read from OTP's own code.
-module(weir_dispatch_tests).

-include_lib("eunit/include/eunit.hrl").

sockets_of_inet_test() ->
    all_there(inet, weir_tcp, 'GenSocketMod', []).

sockets_of_gen_tcp_test() ->
    all_there(gen_tcp, weir_tcp, 'GenTcpMod', []).

%% The module called `Mod' opens sockets; it also serves ports, which our sockets are not.
opening_test_() ->
    [
        {atom_to_list(Module), fun() -> all_there(gen_tcp, Module, 'Mod', served_by_weir_tcp()) end}
     || Module <- [weir_tcp, weir_tcp6, weir_local]
    ].

served_by_weir_tcp() ->
    [{recv, 2}, {recv, 3}, {send, 2}, {shutdown, 2}, {unrecv, 2}].

all_there(Caller, Module, Variable, Except) ->
    case beam_lib:chunks(code:which(Caller), [abstract_code]) of
        {ok, {Caller, [{abstract_code, {_, Forms}}]}} ->
            Called = called(Forms, Variable) -- Except,
            ?assertNotEqual([], Called),
            {module, Module} = code:ensure_loaded(Module),
            ?assertEqual([], [
                Call || {Name, Arity} = Call <- Called, not erlang:function_exported(Module, Name, Arity)
            ]);
        _ ->
            %% This OTP has no debug information.
            ok
    end.

called({call, _, {remote, _, {var, _, Variable}, {atom, _, Name}}, Arguments}, Variable) ->
    [{Name, length(Arguments)} | called(Arguments, Variable)];
called(Form, Variable) when is_tuple(Form) ->
    called(tuple_to_list(Form), Variable);
called([Form | Forms], Variable) ->
    lists:usort(called(Form, Variable) ++ called(Forms, Variable));
called(_, _Variable) ->
    [].
