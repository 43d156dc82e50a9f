%% @private
%% @doc The options of a reactor: defaults and checks. They are normalised here, once.
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

-define(IS_MODULE, "a module that exports init/2, handle_data/3 and handle_close/3").

%% @doc Returns all options of a reactor, or the first wrong one.
-spec new(weir_reactor:options()) -> {ok, normal()} | {error, weir_checked_options:bad_option()}.
new(Options) when is_map(Options), not is_map_key(module, Options) ->
    {error, {bad_option, module, missing, ?IS_MODULE}};
new(Options) ->
    case weir_checked_options:check(Options, [module | maps:keys(?DEFAULTS)], fun allowed/2) of
        ok -> {ok, maps:merge(?DEFAULTS, Options)};
        {error, _} = Error -> Error
    end.

%% @doc Whether a module has the required callbacks of a reactor.
-spec is_reactor(module()) -> boolean().
is_reactor(Module) ->
    _ = code:ensure_loaded(Module),
    lists:all(
        fun({Name, Arity}) -> erlang:function_exported(Module, Name, Arity) end,
        [{init, 2}, {handle_data, 3}, {handle_close, 3}]
    ).

allowed(module, Module) -> is_atom(Module) andalso is_reactor(Module) orelse ?IS_MODULE;
allowed(args, _Args) -> true;
allowed(listen, none) -> true;
allowed(listen, ?SOCKET(Handle)) when is_integer(Handle) -> true;
allowed(listen, _) -> "a listening socket of {tcp_module, weir_tcp}, or none";
allowed(scheduler, Scheduler) -> lists:member(Scheduler, weir_pollsets:all()) orelse "the number of a scheduler";
allowed(affinity, Affinity) -> Affinity =:= soft orelse Affinity =:= bound orelse "soft or bound";
allowed(Time, Value) when Time =:= tick; Time =:= long_callback_ms -> weir_checked_options:time(1, Value);
allowed(handshake_timeout, Time) -> weir_checked_options:time(0, Time);
allowed(max_send_queue, Bytes) -> weir_checked_options:number("bytes", 1, Bytes);
allowed(Flag, Value) when Flag =:= proxy_protocol; Flag =:= measure -> is_boolean(Value) orelse "true or false";
allowed(name, Name) -> is_atom(Name) orelse "an atom".
