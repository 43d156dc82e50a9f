%% @doc The options of an HTTP listener: defaults and checks. All other options belong to `weir:start_listener/4',
%% which checks them.
-module(weir_http_options).

-export([new/3]).
-export([with_ours/1]).

-export_type([options/0]).

-include("weir_http.hrl").

-type options() :: #{
    max_request_line => pos_integer(),
    max_head => pos_integer(),
    max_fields => pos_integer(),
    max_body => non_neg_integer(),
    max_requests => pos_integer() | infinity,
    header_timeout => timeout(),
    body_timeout => timeout(),
    min_body_rate => pos_integer(),
    idle_timeout => timeout(),
    access_log => off | #{format => combined | json, to => logger | {file, file:name_all()}},
    request_ids => off | make | take,
    gzip => weir_http_gzip:options() | off,
    atom() => term()
}.
%% Limits are bytes and times are milliseconds. Times are accurate to a second, or to a quarter of the shortest timeout
%% if that is below 4 seconds.
%% <dl>
%% <dt>`max_request_line' (8192)</dt><dd>A longer request line gets 414.</dd>
%% <dt>`max_head' (16384)</dt><dd>Request line and fields; also the limit of trailers. A larger head gets 431.</dd>
%% <dt>`max_fields' (100)</dt><dd>At most 256. More fields get 431.</dd>
%% <dt>`max_body' (1048576)</dt><dd>A larger body gets 413 as soon as its size is known. A route may have its own
%% limit.</dd>
%% <dt>`max_requests' (`infinity')</dt><dd>The connection is closed after this many requests.</dd>
%% <dt>`header_timeout' (10000)</dt><dd>From the first byte of a head, or from the start of the connection, to the end
%% of the head. Then the client gets 408, or only a close if it has sent nothing.</dd>
%% <dt>`body_timeout' (20000), `min_body_rate' (500)</dt><dd>A body may take `body_timeout', and a second more for each
%% `min_body_rate' bytes received. Then the client gets 408; on a route with `body => stream' only a close.</dd>
%% <dt>`idle_timeout' (60000)</dt><dd>Between requests, and for a client that reads nothing of its response.</dd>
%% <dt>`access_log' (`off')</dt><dd>`#{format => combined | json, to => {file, Path} | logger}' writes a line for each
%% request. `format' (`combined'): the combined format of Apache and nginx, or JSON, which also has the duration and
%% the id. `to' (`logger'): a file, or Erlang's logger at level `notice' in the domain `[weir, http, access]'. Reactors
%% never wait for the writer: when 4 MiB of lines are queued, further lines are dropped and counted as `log_dropped'.
%% See {@link weir_http:reopen_log/1}.</dd>
%% <dt>`gzip' (`off')</dt><dd>Compresses responses for clients that accept it, see {@link weir_http_gzip}. A route may
%% have its own setting.</dd>
%% <dt>`request_ids' (`off')</dt><dd>Gives each request an id: in the log and in events, for handlers
%% ({@link weir_http_request:id/1}), and in the field `x-request-id' of the response. `make': a new id. `take': the id
%% in the field `x-request-id' of the request, if it has 1 to 128 letters, digits and `-_.:/+='; otherwise a new one.
%% Use `take' only behind your own proxy.</dd>
%% </dl>
%% All options of `weir:start_listener/4' are valid too, except `tick' in `reactor'. `max_connections' defaults to
%% 16384. With `tls' each connection has a process instead of a place in a reactor: see the guide. The ALPN protocol is
%% `http/1.1'; `alpn_preferred_protocols' is refused.

-define(IDLE_TIMEOUT, 60000).

-define(DEFAULTS, #{
    max_request_line => 8192,
    max_head => 16384,
    max_fields => 100,
    max_body => 1048576,
    max_requests => infinity,
    header_timeout => 10000,
    body_timeout => 20000,
    min_body_rate => 500,
    idle_timeout => ?IDLE_TIMEOUT,
    access_log => off,
    request_ids => off,
    gzip => off
}).

-define(MAX_CONNECTIONS, 16384).

%% A tick is a quarter of the shortest timeout, within these bounds.
-define(TICK_MS, 1000).
-define(SHORTEST_TICK_MS, 25).

%% The native part has room for this many fields.
-define(MOST_FIELDS, 256).

%% @private
%% @doc Returns the configuration that connections look up, and the options for `weir:start_listener/4'.
-spec new(weir_listener:name(), options(), weir_http_routes:routes()) ->
    {ok, #http{}, weir_listener:options()} | {error, weir_listener:bad_option()}.
new(Name, Options, Routes) when is_map(Options) ->
    try
        Ours = maps:with(maps:keys(?DEFAULTS), Options),
        ok = maps:foreach(fun check/2, Ours),
        Http = http(Name, maps:merge(?DEFAULTS, Ours), Routes),
        {ok, Http,
            listener(maps:without(maps:keys(?DEFAULTS), Options), Http, maps:get(idle_timeout, Options, ?IDLE_TIMEOUT))}
    catch
        throw:{bad_option, _, _, _} = Bad -> {error, Bad}
    end;
new(_Name, Options, _Routes) ->
    {error, {bad_option, options, Options, "a map"}}.

%% @private
%% @doc Adds our options to the list of valid ones in an error of `weir:start_listener/4' about an unknown option.
-spec with_ours(Reason) -> Reason when Reason :: term().
with_ours({bad_option, Name, Value, "unknown option; valid: " ++ Theirs}) ->
    Ours = [[atom_to_list(Key), ", "] || Key <- lists:sort(maps:keys(?DEFAULTS))],
    {bad_option, Name, Value, lists:flatten(["unknown option; valid: ", Ours, Theirs])};
with_ours(Reason) ->
    Reason.

-spec bad(term(), term(), string()) -> no_return().
bad(Name, Value, Allowed) -> throw({bad_option, Name, Value, Allowed}).

-define(IS_TIME(Name), Name =:= header_timeout; Name =:= body_timeout; Name =:= idle_timeout).

check(access_log, Log) ->
    case weir_http_log:check(Log) of
        ok -> ok;
        {error, Value, Allowed} -> bad(access_log, Value, Allowed)
    end;
check(gzip, Gzip) ->
    case weir_http_gzip:new(Gzip) of
        {ok, _} -> ok;
        {error, Value, Allowed} -> bad(gzip, Value, Allowed)
    end;
check(request_ids, Ids) when Ids =:= off; Ids =:= make; Ids =:= take -> ok;
check(request_ids, Value) -> bad(request_ids, Value, "off, make or take");
check(max_fields, Count) when is_integer(Count), Count > 0, Count =< ?MOST_FIELDS -> ok;
check(max_fields, Value) -> bad(max_fields, Value, "1..256");
check(max_body, Bytes) when is_integer(Bytes), Bytes >= 0, Bytes < 1 bsl 52 -> ok;
check(max_body, Value) -> bad(max_body, Value, "a number of bytes from 0 on");
check(_Name, Value) when is_integer(Value), Value > 0, Value < 1 bsl 31 -> ok;
check(max_requests, infinity) -> ok;
check(max_requests, Value) -> bad(max_requests, Value, "a number of requests from 1 on, or infinity");
check(Name, infinity) when ?IS_TIME(Name) -> ok;
check(Name, Value) when ?IS_TIME(Name) -> bad(Name, Value, "milliseconds from 1 on, or infinity");
check(Name, Value) -> bad(Name, Value, "a number of bytes from 1 on").

http(Name, Options, Routes) ->
    #{max_request_line := Line, max_head := Head, max_fields := Fields, min_body_rate := Rate} = Options,
    Times = [
        Time
     || Key <- [header_timeout, body_timeout, idle_timeout], Time <- [maps:get(Key, Options)], is_integer(Time)
    ],
    Tick = max(?SHORTEST_TICK_MS, min(?TICK_MS, lists:min([4 * ?TICK_MS | Times]) div 4)),
    {ok, Gzip} = weir_http_gzip:new(maps:get(gzip, Options)),
    Ticks = fun(Key) -> ticks(maps:get(Key, Options), Tick) end,
    #http{
        name = Name,
        routes = Routes,
        limits = {Line, Head, Fields},
        max_body = maps:get(max_body, Options),
        max_requests = maps:get(max_requests, Options),
        tick = Tick,
        header_ticks = Ticks(header_timeout),
        idle_ticks = Ticks(idle_timeout),
        body_ticks = Ticks(body_timeout),
        body_bytes = max(1, Rate * Tick div 1000),
        counters = weir_http_counters:new(),
        reports = weir_reports:new_limit(),
        draining = atomics:new(2, []),
        log = maps:get(access_log, Options),
        request_ids = maps:get(request_ids, Options),
        gzip = Gzip
    }.

ticks(infinity, _Tick) -> infinity;
ticks(Time, Tick) -> (Time + Tick - 1) div Tick.

%% TLS has no reactor.
listener(Options = #{tls := Tls}, _Http, IdleTimeout) when Tls =/= undefined ->
    case weir_http_tls:options(Tls, IdleTimeout) of
        {ok, Ours = #{socket_opts := SocketOpts}} ->
            Given = maps:get(socket_opts, Options, []),
            is_list(Given) orelse bad(socket_opts, Given, "a list of options of gen_tcp:listen/2"),
            maps:merge(
                #{max_connections => ?MAX_CONNECTIONS}, maps:merge(Options, Ours#{socket_opts => SocketOpts ++ Given})
            );
        {error, Bad} ->
            throw(Bad)
    end;
listener(Options, #http{tick = Tick}, _IdleTimeout) ->
    case maps:get(reactor, Options, #{}) of
        #{tick := Given} ->
            bad(reactor, {tick, Given}, "no tick: the timeouts determine it");
        Reactor when is_map(Reactor) ->
            maps:merge(#{max_connections => ?MAX_CONNECTIONS}, Options#{reactor => Reactor#{tick => Tick}});
        Reactor ->
            bad(reactor, Reactor, "a map")
    end.
