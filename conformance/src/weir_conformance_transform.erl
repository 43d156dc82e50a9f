%% @doc A parse transform for the copies of OTP's suites that run on Weir. The copies that run on stock are compiled
%% unchanged.
%%
%% <ul>
%% <li>`gen_tcp:listen/2', `connect/2,3,4' and `fdopen/2' call {@link weir_conformance_gen_tcp}, which replaces OTP's
%% module by Weir's for a bare family, and counts.</li>
%% <li>`is_port(X)' is also true for a socket of Weir: the suites use it to distinguish OTP's default sockets from
%% those of the `socket' backend, and Weir promises what they expect of the former.</li>
%% <li>`erlang:port_info/1,2' and `getfd', `getstatus' and `ignorefd' of `prim_inet' only work for ports, so they call
%% {@link weir_conformance_gen_tcp}, as does `process_info/2', by which suites check that a process waits in
%% accept.</li>
%% <li>`kernel_test_lib:socket_type/1', which returns the type in the `'DOWN'' of `inet:monitor/1', returns
%% `socket'.</li>
%% </ul>
-module(weir_conformance_transform).

-export([parse_transform/2]).

-define(STAND_IN, weir_conformance_gen_tcp).

-spec parse_transform([erl_parse:abstract_form()], [compile:option()]) -> [erl_parse:abstract_form()].
parse_transform(Forms, _Options) ->
    [rewrite(Form) || Form <- Forms].

rewrite({call, Line, {remote, _, {atom, _, kernel_test_lib}, {atom, _, socket_type}}, [Config]}) ->
    {block, Line, [rewrite(Config), {atom, Line, socket}]};
rewrite({call, Line, {remote, _, {atom, _, Module}, {atom, _, Function}} = Callee, Arguments}) ->
    {call, Line, callee(Callee, Module, Function, length(Arguments)), rewrite(Arguments)};
rewrite({call, Line, {atom, L1, process_info}, [_, _] = Arguments}) ->
    {call, Line, {remote, L1, {atom, L1, ?STAND_IN}, {atom, L1, process_info}}, rewrite(Arguments)};
rewrite({'fun', Line, {function, {atom, L1, Module}, {atom, _, _} = Function, {integer, _, Arity} = A}}) ->
    {'fun', Line, {function, {atom, L1, module(Module, element(3, Function), Arity)}, Function, A}};
rewrite({call, Line, {atom, _, is_port}, [Term]}) ->
    is_socket(Line, rewrite(Term));
rewrite(Tuple) when is_tuple(Tuple) ->
    list_to_tuple(rewrite(tuple_to_list(Tuple)));
rewrite([Head | Tail]) ->
    [rewrite(Head) | rewrite(Tail)];
rewrite(Term) ->
    Term.

callee({remote, Line, {atom, L1, Module}, Name}, Module, Function, Arity) ->
    {remote, Line, {atom, L1, module(Module, Function, Arity)}, Name}.

module(gen_tcp, listen, 2) -> ?STAND_IN;
module(gen_tcp, connect, Arity) when Arity >= 2, Arity =< 4 -> ?STAND_IN;
module(gen_tcp, fdopen, 2) -> ?STAND_IN;
module(erlang, port_info, Arity) when Arity =:= 1; Arity =:= 2 -> ?STAND_IN;
module(prim_inet, getfd, 1) -> ?STAND_IN;
module(prim_inet, ignorefd, 2) -> ?STAND_IN;
module(prim_inet, getstatus, 1) -> ?STAND_IN;
module(Module, _Function, _Arity) -> Module.

%% Uses only guard expressions: is_port(T) orelse (is_tuple(T) andalso element(1, T) =:= '$inet' andalso element(2, T)
%% =/= gen_tcp_socket).
is_socket(Line, Term) ->
    Call = fun(Name, Arguments) -> {call, Line, {atom, Line, Name}, Arguments} end,
    Element = fun(N) -> Call(element, [{integer, Line, N}, Term]) end,
    And = fun(Left, Right) -> {op, Line, 'andalso', Left, Right} end,
    {op, Line, 'orelse', Call(is_port, [Term]),
        And(
            Call(is_tuple, [Term]),
            And(
                {op, Line, '=:=', Element(1), {atom, Line, '$inet'}},
                {op, Line, '=/=', Element(2), {atom, Line, gen_tcp_socket}}
            )
        )}.
