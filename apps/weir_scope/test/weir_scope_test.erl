%% Views of the node of a case.
-module(weir_scope_test).

-export([view/1]).
-export([bring/2]).
-export([next/1]).
-export([traces/1]).

-include_lib("common_test/include/ct.hrl").

view(Config) ->
    weir_scope_distribution:view(?config(node, Config), proplists:get_value(load, Config, true)).

%% Loads a module of the tests on the node.
bring(Config, Module) -> weir_scope_distribution:bring(?config(peer, Config), Module).

%% Waits for the sample after the present one.
next(View) -> {ok, weir_scope_distribution:next(View)}.

%% Returns what a visit could leave behind: modules, processes in functions of weir_scope or erl_eval, and the flag of
%% the schedulers.
traces(Config) ->
    Call = fun(Module, Function, Arguments) ->
        weir_scope_distribution:call(?config(peer, Config), Module, Function, Arguments)
    end,
    Modules = [Module || {Module, _} <- Call(code, all_loaded, []), lists:prefix("weir_scope", atom_to_list(Module))],
    Calls = [
        {Call(erlang, process_info, [Pid, initial_call]), Call(erlang, process_info, [Pid, current_function])}
     || Pid <- Call(erlang, processes, [])
    ],
    Ours = [Called || Called <- Calls, contains("weir_scope", Called) orelse contains("erl_eval", Called)],
    {Modules, Ours, Call(erlang, statistics, [scheduler_wall_time])}.

contains(Word, Term) -> string:find(io_lib:format("~0p", [Term]), Word) =/= nomatch.
