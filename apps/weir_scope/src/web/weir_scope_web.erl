%% @doc Serves the page and `/metrics' of a node over HTTP. It needs the application `weir_http'.
%%
%% In a release, the environment variable `http' of the application `weir_scope' starts it:
%% ```
%% {weir_scope, [{http, #{port => 9464, token => <<"at least sixteen characters">>}}]}
%% '''
%%
%% Everything is read-only. By default it listens on 127.0.0.1. Every request for data needs the token, as
%% `Authorization: Bearer TOKEN'. The token is compared in constant time, and kept only as a hash. The Host of a
%% request must be an address, `localhost' or one of `hosts'; other requests get 421. So a page of another site cannot
%% read the data by DNS rebinding.
%%
%% <table>
%% <tr><td>`/'</td><td>the page; it takes the token from its fragment, as in `/#token=TOKEN'</td></tr>
%% <tr><td>`/metrics'</td><td>OpenMetrics text; see {@link weir_scope_metrics}</td></tr>
%% <tr><td>`/about'</td><td>the node and the tabs</td></tr>
%% <tr><td>`/history/second', `/history/minute'</td><td>samples as JSON; with `?after=MS' only later ones</td></tr>
%% <tr><td>`/look/TAB'</td><td>what a tab shows, as JSON; `?sort=COLUMN'</td></tr>
%% <tr><td>`/stream'</td><td>server-sent events: `row' each second, `failure' if the node does not answer</td></tr>
%% </table>
-module(weir_scope_web).
-behaviour(supervisor).

-export([check/1]).
-export([start_link/2]).
-export([port/0]).
-export([init/1]).

-export_type([options/0, source/0, checked/0, reason/0]).

-type options() :: #{
    token := binary() | none,
    port => inet:port_number(),
    ip => inet:ip_address(),
    hosts => [binary()],
    max_streams => pos_integer()
}.
%% `token': the token of requests, 16 bytes or more; with `none' everyone who reaches the port has access. `port' (0: a
%% free one). `ip' (127.0.0.1). `hosts' (`[]'): allowed names beside `localhost', without a port. `max_streams' (16):
%% pages that may be open at the same time.

-type source() :: {module(), term()}.
%% The module of the process that has the data, such as `weir_scope_feed', and its argument.

-opaque checked() :: #{listener := map(), guard := weir_scope_guard:guard(), max_streams := pos_integer()}.

-type reason() ::
    {bad_option, Key :: atom(), Value :: term(), Allowed :: string()} | {missing_application, weir_http} | term().

-define(LISTENER, weir_scope_http).

%% @doc Checks options, and replaces the token by its hash, so that the result may appear in reports. An error never
%% contains the token.
-spec check(options()) -> {ok, checked()} | {error, reason()}.
check(Options) when is_map(Options) ->
    Wrong = [
        {bad_option, Key, told(Key, Value), Allowed}
     || {Key, Value} <- lists:sort(maps:to_list(Options)), Allowed <- [allowed(Key, Value)], Allowed =/= true
    ],
    case {Wrong, Options, code:ensure_loaded(weir_http)} of
        {[Bad | _], _, _} ->
            {error, Bad};
        {[], _, {error, _}} ->
            {error, {missing_application, weir_http}};
        {[], #{token := Token}, _} ->
            {ok, #{
                listener => #{
                    port => maps:get(port, Options, 0),
                    ip => maps:get(ip, Options, {127, 0, 0, 1}),
                    max_connections => 128,
                    gzip => #{}
                },
                guard => weir_scope_guard:new(Token, maps:get(hosts, Options, [])),
                max_streams => maps:get(max_streams, Options, 16)
            }};
        {[], _, _} ->
            {error, {bad_option, token, missing, allowed(token, missing)}}
    end;
check(_Options) ->
    %% The value may contain a token too.
    {error, {bad_option, http, hidden, "a map with a token"}}.

%% Errors are logged, and the value of an unknown key may be a token.
told(Key, Value) when Key =:= port; Key =:= ip; Key =:= hosts; Key =:= max_streams -> Value;
told(_Key, _Value) -> hidden.

allowed(token, none) -> true;
allowed(token, Token) when is_binary(Token), byte_size(Token) >= 16 -> true;
allowed(token, _) -> "16 bytes or more, or none";
allowed(port, Port) when is_integer(Port), Port >= 0, Port < 65536 -> true;
allowed(port, _) -> "a number from 0 to 65535";
allowed(ip, Ip) -> inet:is_ip_address(Ip) orelse "an address, as a tuple";
allowed(hosts, Hosts) -> is_list(Hosts) andalso lists:all(fun is_binary/1, Hosts) orelse "a list of names, as binaries";
allowed(max_streams, Most) when is_integer(Most), Most > 0, Most =< 100 -> true;
allowed(max_streams, _) -> "a number from 1 to 100";
allowed(_, _) -> "one of token, port, ip, hosts, max_streams".

%% @doc Starts the page, linked to the caller. `weir_http' has to run. There can only be one. Errors: those of {@link
%% weir_http:start_listener/3}, such as `eaddrinuse'.
-spec start_link(source(), checked()) -> {ok, pid()} | {error, reason()}.
start_link(Source, Checked) ->
    case supervisor:start_link({local, ?MODULE}, ?MODULE, {Source, Checked}) of
        {error, {shutdown, {failed_to_start_child, _, Reason}}} -> {error, Reason};
        Started -> Started
    end.

%% @doc Returns the port of the page.
-spec port() -> inet:port_number().
port() -> weir:get_port(?LISTENER).

%% @private
-spec init({source(), checked()}) -> {ok, {supervisor:sup_flags(), [supervisor:child_spec()]}}.
init({{Module, Argument}, #{listener := Listener, guard := Guard, max_streams := Most}}) ->
    %% The listener restarts with the feed, so that pages reconnect and find the new feed.
    {ok, {#{strategy => one_for_all, intensity => 5, period => 60}, [
        #{id => feed, start => {Module, start_link, [Argument, Most]}},
        weir_http:child_spec(?LISTENER, Listener, weir_scope_routes:all(Guard))
    ]}}.
