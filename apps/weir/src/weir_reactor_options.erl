%% @private
%% @doc The options of a reactor: which there are, what they are when nobody says, and what is wrong with those that are
%% wrong. They are normalised here, once.
-module(weir_reactor_options).

-include("weir_socket.hrl").

-export([new/1]).
-export([is_reactor/1]).

-export_type([normal/0]).

-type normal() :: #{
    module := module(),
    args := term(),
    listen := weir_tcp:socket() | none,
    scheduler := pos_integer() | undefined,
    affinity := soft | bound,
    tick := pos_integer() | infinity,
    long_callback_ms := pos_integer() | infinity,
    max_send_queue := pos_integer(),
    proxy_protocol := boolean(),
    handshake_timeout := timeout(),
    measure := boolean(),
    name := atom()
}.

-define(DEFAULTS, #{
    args => undefined,
    listen => none,
    scheduler => undefined,
    affinity => soft,
    tick => infinity,
    long_callback_ms => 100,
    max_send_queue => 1024 * 1024,
    proxy_protocol => false,
    handshake_timeout => 5000,
    measure => false,
    name => undefined
}).

%% @doc All options of a reactor, or what is wrong with one.
-spec new(weir_reactor:options()) -> {ok, normal()} | {error, weir_listener:bad_option()}.
new(Options = #{module := _}) ->
    try
        maps:foreach(fun(Name, Value) -> is_option(Name, Value) orelse throw({bad, Name, Value}) end, Options),
        {ok, maps:merge(?DEFAULTS, Options)}
    catch
        throw:{bad, Name, Value} -> {error, {bad_option, Name, Value, allowed(Name)}}
    end;
new(Options) when is_map(Options) ->
    {error, {bad_option, module, missing, allowed(module)}};
new(Options) ->
    {error, {bad_option, options, Options, "a map"}}.

%% @doc Whether a module has the callbacks that a reactor needs.
-spec is_reactor(module()) -> boolean().
is_reactor(Module) ->
    _ = code:ensure_loaded(Module),
    lists:all(
        fun({Name, Arity}) -> erlang:function_exported(Module, Name, Arity) end,
        [{init, 2}, {handle_data, 3}, {handle_close, 3}]
    ).

is_option(module, Module) -> is_atom(Module) andalso is_reactor(Module);
is_option(args, _Args) -> true;
is_option(listen, none) -> true;
is_option(listen, ?SOCKET(Handle)) -> is_integer(Handle);
is_option(scheduler, Scheduler) -> is_integer(Scheduler) andalso lists:member(Scheduler, weir_pollsets:all());
is_option(affinity, Affinity) -> Affinity =:= soft orelse Affinity =:= bound;
is_option(tick, Tick) -> is_time(Tick);
is_option(long_callback_ms, Long) -> is_time(Long);
is_option(max_send_queue, Bytes) -> is_integer(Bytes) andalso Bytes > 0;
is_option(proxy_protocol, Proxy) -> is_boolean(Proxy);
is_option(handshake_timeout, Time) -> Time =:= 0 orelse is_time(Time);
is_option(measure, Measure) -> is_boolean(Measure);
is_option(name, Name) -> is_atom(Name);
is_option(_, _) -> false.

allowed(module) -> "a module that exports init/2, handle_data/3 and handle_close/3";
allowed(listen) -> "a listening socket of {tcp_module, weir_tcp}, or none";
allowed(scheduler) -> "the number of a scheduler";
allowed(affinity) -> "soft or bound";
allowed(Time) when Time =:= tick; Time =:= long_callback_ms -> "milliseconds from 1 on, or infinity";
allowed(max_send_queue) -> "a number of bytes from 1 on";
allowed(Flag) when Flag =:= proxy_protocol; Flag =:= measure -> "true or false";
allowed(handshake_timeout) -> "milliseconds or infinity";
allowed(name) -> "an atom";
allowed(_) -> "unknown option; valid: module, " ++ lists:append(lists:join(", ", names())).

names() -> [atom_to_list(Name) || Name <- maps:keys(?DEFAULTS)].

is_time(infinity) -> true;
is_time(Milliseconds) -> is_integer(Milliseconds) andalso Milliseconds > 0.
