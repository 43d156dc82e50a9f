%% What modules of Weir call: no application that Weir does not name, since relx and systools warn of each such call in a
%% release; and each other in one direction only.
-module(weir_modules_tests).

-include_lib("eunit/include/eunit.hrl").

they_call_only_applications_that_are_named_test_() ->
    {timeout, 60, fun they_call_only_applications_that_are_named/0}.

they_call_only_applications_that_are_named() ->
    Modules = modules(),
    {ok, Named} = application:get_key(weir, applications),
    {ok, Xref} = xref:start([]),
    try
        ok = xref:set_default(Xref, [{warnings, false}, {verbose, false}]),
        [{ok, Module} = xref:add_module(Xref, code:which(Module)) || Module <- Modules],
        {ok, Calls} = xref:q(Xref, "XC"),
        ?assertEqual([], [Call || {_, {Called, _, _}} = Call <- Calls, not is_available(Called, Named)]),
        ?assertNotEqual([], Calls)
    after
        xref:stop(Xref)
    end.

is_available(Module, Applications) ->
    case code:which(Module) of
        preloaded -> true;
        File when is_list(File) -> lists:any(fun(Named) -> lists:prefix(code:lib_dir(Named), File) end, [weir | Applications]);
        _ -> Module =:= '$M_EXPR'
    end.

%% Those in a circle cannot be understood, tested or changed one by one.
none_calls_itself_by_way_of_others_test() ->
    Modules = modules(),
    Graph = digraph:new(),
    _ = [digraph:add_vertex(Graph, Module) || Module <- Modules],
    Calls = [{Module, Called} || Module <- Modules, Called <- called(Module), Called =/= Module, lists:member(Called, Modules)],
    _ = [digraph:add_edge(Graph, Module, Called) || {Module, Called} <- Calls],
    ?assertEqual([], digraph_utils:cyclic_strong_components(Graph)),
    ?assertNotEqual([], Calls),
    true = digraph:delete(Graph).

called(Module) ->
    {ok, {Module, [{imports, Functions}]}} = beam_lib:chunks(code:which(Module), [imports]),
    lists:usort([Called || {Called, _, _} <- Functions]).

%% rebar3 counts tests among the modules while it runs them.
modules() ->
    _ = application:load(weir),
    {ok, Modules} = application:get_key(weir, modules),
    [Module || Module <- Modules, is_source(Module)].

is_source(Module) ->
    filename:basename(filename:dirname(proplists:get_value(source, Module:module_info(compile)))) =:= "src".
