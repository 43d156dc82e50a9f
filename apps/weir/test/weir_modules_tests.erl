%% Calls of the modules in each of Weir's applications. They call only applications that theirs names, because relx
%% and systools warn of others in a release. They call each other in one direction only, because modules in a cycle
%% cannot be understood, tested or changed one by one.
-module(weir_modules_tests).

-include_lib("eunit/include/eunit.hrl").

-define(APPLICATIONS, [
    weir,
    weir_http,
    weir_pubsub,
    weir_proxy,
    weir_scope,
    weir_load,
    weir_formats,
    weir_cli,
    weir_examples,
    weir_bench,
    weir_conformance
]).

%% Modules of OTP 27 and ranch may be missing; their callers check first.
-define(PERHAPS, [json, trace, ranch_server]).

they_call_only_applications_that_are_named_test_() ->
    of_each(fun only_named/1).

only_named(Application) ->
    Calls = [{Module, Called} || Module <- modules(Application), Called <- called(Module)],
    {ok, Named} = application:get_key(Application, applications),
    Directories = [filename:join(code:lib_dir(Available), ebin) || Available <- [Application | Named]],
    Called = lists:usort([Module || {_, Module} <- Calls]) -- ?PERHAPS,
    Unnamed = [Module || Module <- Called, not is_in(Directories, code:which(Module))],
    ?assertEqual([], [Call || {_, Module} = Call <- Calls, lists:member(Module, Unnamed)]),
    ?assertNotEqual([], Calls).

is_in(_Directories, preloaded) -> true;
is_in(_Directories, non_existing) -> false;
is_in(Directories, File) -> lists:member(filename:dirname(File), Directories).

none_calls_itself_by_way_of_others_test_() ->
    of_each(fun no_circle/1).

no_circle(Application) ->
    Modules = modules(Application),
    Graph = digraph:new(),
    _ = [digraph:add_vertex(Graph, Module) || Module <- Modules],
    Calls = [
        {Module, Called}
     || Module <- Modules, Called <- called(Module), Called =/= Module, lists:member(Called, Modules)
    ],
    _ = [digraph:add_edge(Graph, Module, Called) || {Module, Called} <- Calls],
    ?assertEqual([], digraph_utils:cyclic_strong_components(Graph)),
    ?assertNotEqual([], Calls),
    true = digraph:delete(Graph).

of_each(Check) ->
    [{atom_to_list(Application), {timeout, 60, fun() -> Check(Application) end}} || Application <- ?APPLICATIONS].

called(Module) ->
    {ok, {Module, [{imports, Functions}]}} = beam_lib:chunks(code:which(Module), [imports]),
    lists:usort([Called || {Called, _, _} <- Functions]).

%% rebar3 adds tests to the modules while it runs them.
modules(Application) ->
    _ = application:load(Application),
    {ok, Modules} = application:get_key(Application, modules),
    [Module || Module <- Modules, is_source(Module)].

%% Sources are in folders below src, and the tree may be below a folder of any name.
is_source(Module) ->
    Path = filename:split(proplists:get_value(source, Module:module_info(compile))),
    lists:last([Folder || Folder <- Path, lists:member(Folder, ["src", "test", "soak"])]) =:= "src".
