%% Views of the node of a case.
-module(weir_scope_test).

-export([view/1]).
-export([bring/2]).
-export([next/1]).
-export([traces/1]).
-export([until/1]).

-include_lib("common_test/include/ct.hrl").

view(Config) ->
    {ok, View} = weir_scope:open(?config(node, Config), #{load => proplists:get_value(load, Config, true)}),
    View.

%% A module of the tests on the node.
bring(Config, Module) -> weir_scope_distribution:bring(?config(peer, Config), Module).

%% The sample after the present one.
next(View) ->
    {ok, #{at := At}} = weir_scope:sample(View),
    next(View, At).

next(View, At) ->
    case weir_scope:sample(View) of
        {ok, #{at := At}} -> timer:sleep(20), next(View, At);
        Answer -> Answer
    end.

%% What a visit could leave behind: modules, processes with a function of ours or of erl_eval, the flag of the schedulers.
traces(Config) ->
    Call = fun(Module, Function, Arguments) -> peer:call(?config(peer, Config), Module, Function, Arguments) end,
    Modules = [Module || {Module, _} <- Call(code, all_loaded, []), lists:prefix("weir_scope", atom_to_list(Module))],
    Calls = [{Call(erlang, process_info, [Pid, initial_call]), Call(erlang, process_info, [Pid, current_function])} || Pid <- Call(erlang, processes, [])],
    Ours = [Called || Called <- Calls, contains("weir_scope", Called) orelse contains("erl_eval", Called)],
    {Modules, Ours, Call(erlang, statistics, [scheduler_wall_time])}.

contains(Word, Term) -> string:find(io_lib:format("~0p", [Term]), Word) =/= nomatch.

until(Condition) -> until(Condition, 600).

until(Condition, 0) -> ct:fail({never_true, Condition});
until(Condition, Times) ->
    case Condition() of
        true -> ok;
        false -> timer:sleep(50), until(Condition, Times - 1)
    end.
