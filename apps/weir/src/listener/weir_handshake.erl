%% @private
%% @doc Results of PROXY headers and TLS handshakes: failures are counted and logged, and each result is an event.
-module(weir_handshake).

-export([new/1]).
-export([failed/1]).
-export([ended/5]).
-export([peer/1]).

-export_type([handshakes/0]).

-include("weir_socket.hrl").

-record(handshakes, {
    name :: weir_listener:name() | undefined,
    %% The number of failures, and the rate limit of their log reports.
    failed :: counters:counters_ref(),
    limit :: weir_reports:limit()
}).

-opaque handshakes() :: #handshakes{}.
%% The handshakes of a listener, or of a reactor without one.

-define(STOPPED, [weir, handshake, stop]).

%% @doc Creates the handshakes of a listener; `undefined' for a reactor without one.
-spec new(weir_listener:name() | undefined) -> handshakes().
new(Name) -> #handshakes{name = Name, failed = counters:new(1, []), limit = weir_reports:new_limit()}.

%% @doc Returns the number of failures.
-spec failed(handshakes()) -> non_neg_integer().
failed(#handshakes{failed = Failed}) -> counters:get(Failed, 1).

%% @doc Counts and reports a result in the calling process, which began at a monotonic time. Returns the result.
-spec ended(proxy | tls, Peer :: weir_tcp:name() | undefined, Start :: integer(), Result, handshakes()) -> Result when
    Result :: {ok, term()} | {error, term()}.
ended(Kind, Peer, Start, Result, Handshakes = #handshakes{name = Name}) ->
    Reason =
        case Result of
            {ok, _} -> normal;
            {error, Why} -> failed(Kind, Peer, Why, Handshakes)
        end,
    case weir_event:is_attached(?STOPPED) of
        true ->
            Now = erlang:monotonic_time(),
            weir_event:execute(?STOPPED, #{monotonic_time => Now, duration => Now - Start}, #{
                name => Name, kind => Kind, peer => Peer, pid => self(), reason => Reason
            });
        false ->
            ok
    end,
    Result.

failed(Kind, Peer, Reason, #handshakes{name = Name, failed = Failed, limit = Limit}) ->
    ok = counters:add(Failed, 1, 1),
    %% Port probes are logged at level info.
    Level =
        case Reason of
            closed -> info;
            _ -> warning
        end,
    What =
        case Kind of
            tls -> "a TLS handshake failed; its connection is closed";
            proxy -> "a connection without a valid PROXY header is closed"
        end,
    ok = weir_reports:log(Level, #{what => What, listener => Name, peer => Peer, reason => Reason}, Limit),
    Reason.

%% @doc Returns the address of a connection's peer. Call it before the handshake: a failure closes the socket.
-spec peer(weir_listener:connection()) -> weir_tcp:name() | undefined.
peer(Socket) ->
    Name =
        case Socket of
            ?SOCKET(_) -> inet:peername(Socket);
            _ -> (weir_ssl:ssl()):peername(Socket)
        end,
    case Name of
        {ok, Peer} -> Peer;
        {error, _} -> undefined
    end.
