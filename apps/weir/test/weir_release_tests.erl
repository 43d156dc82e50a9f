%% Weir in a release with nothing but the applications that it names: relx and systools warn of every call of others.
-module(weir_release_tests).

-include_lib("eunit/include/eunit.hrl").

it_calls_only_applications_that_it_names_test_() ->
    {timeout, 60, fun it_calls_only_applications_that_it_names/0}.

it_calls_only_applications_that_it_names() ->
    _ = application:load(weir),
    {ok, Named} = application:get_key(weir, applications),
    {ok, Modules} = application:get_key(weir, modules),
    {ok, Xref} = xref:start([]),
    try
        ok = xref:set_default(Xref, [{warnings, false}, {verbose, false}]),
        [{ok, Module} = xref:add_module(Xref, code:which(Module)) || Module <- Modules, is_source(Module)],
        {ok, Calls} = xref:q(Xref, "XC"),
        ?assertEqual([], [Call || {_, {Called, _, _}} = Call <- Calls, not is_available(Called, Named)]),
        ?assertNotEqual([], Calls)
    after
        xref:stop(Xref)
    end.

%% rebar3 counts tests among the modules while it runs them.
is_source(Module) ->
    filename:basename(filename:dirname(proplists:get_value(source, Module:module_info(compile)))) =:= "src".

is_available(Module, Applications) ->
    case code:which(Module) of
        preloaded -> true;
        File when is_list(File) -> lists:any(fun(Named) -> lists:prefix(code:lib_dir(Named), File) end, [weir | Applications]);
        _ -> Module =:= '$M_EXPR'
    end.
