%% Names of listeners from two processes at once: a name belongs to at most one listener, and each call takes effect
%% at one moment.
-module(prop_parallel_listeners).
-behaviour(proper_statem).
-behaviour(weir_parallel).

-include_lib("proper/include/proper.hrl").
-include("weir_parallel.hrl").

-export([with/1]).
-export([initial_state/0, command/1, precondition/2, postcondition/3, next_state/3]).
-export([start/3, stop/2, suspend/2, resume/2, set_most/3, look/2, port/2, names/1]).

-define(NAMES, [a, b]).
-define(NAME(Name), {?MODULE, Name}).

%% The known state of each listener: its process and settings. Its port is known once a call has returned it.
-record(listener, {pid, status = running :: running | suspended, most :: pos_integer(), port = unknown}).

%% The world of a program ---------------------------------------------------------

with(Run) ->
    try
        Run(none)
    after
        _ = [weir:stop_listener(?NAME(Name)) || Name <- ?NAMES]
    end.

%% Commands -------------------------------------------------------------------------

start(World, Name, Most) ->
    tried(World, fun() ->
        weir:start_listener(?NAME(Name), #{ip => {127, 0, 0, 1}, max_connections => Most}, fun(_, _) -> ok end, none)
    end).

stop(World, Name) -> tried(World, fun() -> weir:stop_listener(?NAME(Name)) end).

suspend(World, Name) -> tried(World, fun() -> weir:suspend_listener(?NAME(Name)) end).

resume(World, Name) -> tried(World, fun() -> weir:resume_listener(?NAME(Name)) end).

set_most(World, Name, Most) -> tried(World, fun() -> weir:set_options(?NAME(Name), #{max_connections => Most}) end).

look(World, Name) ->
    tried(World, fun() ->
        case weir:info(?NAME(Name)) of
            #{pid := Pid, status := Status, max_connections := Most} -> {Pid, Status, Most};
            Error -> Error
        end
    end).

port(World, Name) -> tried(World, fun() -> weir:get_port(?NAME(Name)) end).

names(World) -> tried(World, fun() -> lists:sort([Name || ?NAME(Name) <- weir:listeners()]) end).

tried(World, Call) ->
    case weir_parallel:call(World, fun(none) -> Call() end) of
        {error, {no_listener, ?NAME(_)}} -> no_listener;
        Outcome -> Outcome
    end.

%% The model ------------------------------------------------------------------------

initial_state() -> #{}.

command(_Model) ->
    {Name, Most} = {oneof(?NAMES), range(1, 3)},
    frequency([
        {6, {call, ?MODULE, start, [?WORLD, Name, Most]}},
        {4, {call, ?MODULE, stop, [?WORLD, Name]}},
        {2, {call, ?MODULE, suspend, [?WORLD, Name]}},
        {2, {call, ?MODULE, resume, [?WORLD, Name]}},
        {2, {call, ?MODULE, set_most, [?WORLD, Name, Most]}},
        {4, {call, ?MODULE, look, [?WORLD, Name]}},
        {3, {call, ?MODULE, port, [?WORLD, Name]}},
        {2, {call, ?MODULE, names, [?WORLD]}}
    ]).

precondition(_Model, _Call) -> true.

postcondition(Model, {call, _, names, _}, Result) ->
    Result =:= lists:sort(maps:keys(Model));
postcondition(Model, {call, _, start, [_, Name, _]}, Result) ->
    case {Model, Result} of
        {#{Name := #listener{pid = Pid}}, {error, {already_started, Pid}}} -> true;
        {#{Name := _}, _} -> false;
        {#{}, {ok, Pid}} -> is_pid(Pid);
        _ -> false
    end;
postcondition(Model, {call, _, What, [_, Name | _]}, Result) ->
    case Model of
        #{Name := Listener} -> is_right(What, Result, Listener);
        #{} -> Result =:= no_listener
    end.

is_right(look, Result, #listener{pid = Pid, status = Status, most = Most}) -> Result =:= {Pid, Status, Most};
is_right(port, Result, #listener{port = unknown}) -> is_integer(Result) andalso Result > 0;
is_right(port, Result, #listener{port = Port}) -> Result =:= Port;
is_right(_What, Result, _Listener) -> Result =:= ok.

next_state(Model, Result, {call, _, start, [_, Name, Most]}) ->
    maps:merge(#{Name => #listener{pid = {call, erlang, element, [2, Result]}, most = Most}}, Model);
next_state(Model, _Result, {call, _, stop, [_, Name]}) ->
    maps:remove(Name, Model);
next_state(Model, Result, {call, _, What, [_, Name | Arguments]}) when is_map_key(Name, Model) ->
    maps:update_with(Name, fun(Listener) -> changed(What, Arguments, Result, Listener) end, Model);
next_state(Model, _Result, _Call) ->
    Model.

changed(suspend, [], _Result, Listener) -> Listener#listener{status = suspended};
changed(resume, [], _Result, Listener) -> Listener#listener{status = running};
changed(set_most, [Most], _Result, Listener) -> Listener#listener{most = Most};
changed(port, [], Port, Listener) -> Listener#listener{port = Port};
changed(look, [], _Result, Listener) -> Listener.
