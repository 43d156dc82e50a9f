%% @private
%% @doc The options of a reactor: which there are, what they are when nobody says, and what is wrong with those that are
%% wrong. They are normalised here, once.
-module(weir_reactor_options).

-include("weir_socket.hrl").

-export([new/1]).

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
    name => undefined
}).

%% @doc All options of a reactor, or one that is wrong.
-spec new(weir_reactor:options()) -> {ok, normal()} | {error, {bad_option, term()}}.
new(Options = #{module := _}) ->
    case [Option || Option <- maps:to_list(Options), not is_option(Option)] of
        [] -> {ok, maps:merge(?DEFAULTS, Options)};
        [Bad | _] -> {error, {bad_option, Bad}}
    end;
new(Options) when is_map(Options) ->
    {error, {bad_option, {module, missing}}};
new(Options) ->
    {error, {bad_option, Options}}.

is_option({module, Module}) -> is_atom(Module);
is_option({args, _Args}) -> true;
is_option({listen, none}) -> true;
is_option({listen, ?SOCKET(Handle)}) -> is_integer(Handle);
is_option({scheduler, Scheduler}) -> is_integer(Scheduler) andalso lists:member(Scheduler, weir_pollsets:all());
is_option({affinity, Affinity}) -> Affinity =:= soft orelse Affinity =:= bound;
is_option({tick, Tick}) -> is_time(Tick);
is_option({long_callback_ms, Long}) -> is_time(Long);
is_option({max_send_queue, Bytes}) -> is_integer(Bytes) andalso Bytes > 0;
is_option({proxy_protocol, Proxy}) -> is_boolean(Proxy);
is_option({handshake_timeout, 0}) -> true;
is_option({handshake_timeout, Time}) -> is_time(Time);
is_option({name, Name}) -> is_atom(Name);
is_option(_) -> false.

is_time(infinity) -> true;
is_time(Milliseconds) -> is_integer(Milliseconds) andalso Milliseconds > 0.
