%% @doc Held requests (long polls): requests that are answered later, by a message, by one broadcast to many, or at a
%% timeout.
%%
%% ```
%% -module(news).
%% -behaviour(weir_http_direct).
%% -behaviour(weir_http_held).
%% -export([handle/2, open/2]).
%%
%% handle(_Request, Group) -> {hold, news, Group}.
%%
%% open(Held, Group) ->
%%     ok = weir_http_held:join(Group, Held),
%%     {ok, Group}.
%% '''
%% and when there is news, in any process:
%% ```
%% weir_group:broadcast(Group, weir_http_held:frame({reply, 200, [], News}))
%% '''
%%
%% A direct handler holds a request with `{hold, Module, State}' or `{hold, Module, State, Options}'. From then on
%% callbacks of Module are called. A held request has no process and no timer. Further requests of its connection wait
%% until it is answered. HEAD is answered at once, with the response for the timeout.
%%
%% The callbacks run in the reactor: while one runs, all connections of its scheduler wait.
%%
%% <h2>Callbacks</h2>
%% <ul>
%% <li>`open(Held, State)': the request is held from now on. Other processes refer to it by Held. To miss nothing, join
%% a group first, and then check whether there is already something for the client.</li>
%% <li>`info(Message, State)', optional: a message of {@link tell/2}, or another for the connection (see {@link
%% weir_reactor:send/2}).</li>
%% <li>`closed(Reason, State)', optional: the last call, exactly one for each request that `open/2' held; see {@type
%% reason()}. Its result is ignored.</li>
%% </ul>
%%
%% <h2>Results</h2>
%% `open/2' and `info/2' return `{ok, State}' or the response, in any form that a direct handler may return. With
%% `{process, Fun}', `Fun(Request)' runs in a new process, and returns what a {@link weir_http_process} may. If a
%% callback raises or returns something else, the client gets a 500 and the failure is logged.
-module(weir_http_held).

-export([reply/2]).
-export([tell/2]).
-export([join/2]).
-export([frame/1]).
-export([takes_frame/1]).

%% For the reactor.
-export([new/1]).
-export([in/4]).

-export_type([held/0, response/0, result/1, result/0, reason/0, options/0]).

-opaque held() :: {weir_http_held, weir_http_socket:socket(), reference()}.

%% The request whose callback is running.
-record(current, {
    held :: held(),
    request :: weir_http_request:request(),
    wanted :: weir_http_response:wanted(),
    joined = none :: none | joined
}).

-type response() :: weir_http_direct:response().

-type result(State) :: {ok, State} | response().

-type result() :: result(term()).

-type reason() :: answered | timeout | drained | {lost, term()} | {crashed, {error | exit | throw, term()}}.
%% Why a request is no longer held. `answered': by a result, {@link reply/2} or a group. `lost': the connection ended,
%% by the client or with the listener.

-type options() :: #{timeout => timeout(), otherwise => response()}.
%% <dl>
%% <dt>`timeout' (30000)</dt><dd>Milliseconds, accurate to a tick of the listener (a second), until the request is
%% answered with `otherwise'. Held requests also get this answer when their listener is drained.</dd>
%% <dt>`otherwise' (204, without a body)</dt><dd>The response at the timeout.</dd>
%% </dl>

-callback open(held(), State :: term()) -> result().
-callback info(Message :: term(), State :: term()) -> result().
-callback closed(reason(), State :: term()) -> term().

-optional_callbacks([info/2, closed/2]).

%% @doc Answers a held request, from any process. The first answer counts: later ones, or those after the timeout, do
%% nothing.
-spec reply(held(), response()) -> ok | {error, closed}.
reply({weir_http_held, Socket, _} = Held, Response) ->
    weir_http_upgrade:send(Socket, {held_reply, Held, Response}).

%% @doc Sends a message to a held request, for the callback `info/2' of its handler. Ignored if it has been answered.
-spec tell(held(), Message :: term()) -> ok | {error, closed}.
tell({weir_http_held, Socket, _} = Held, Message) ->
    weir_http_upgrade:send(Socket, {held_tell, Held, Message}).

%% @doc Adds a held request to a group for one message, which must be a {@link frame/1}, and answers it. May be called
%% several times, for several groups. Call it only in callbacks of that request: it fails with `not_held' elsewhere,
%% and after the request has been answered. `tls': a connection over TLS cannot be a member.
-spec join(weir_group:group(), held()) -> ok | {error, closed | enotconn | tls}.
join(Group, {weir_http_held, Socket, _} = Held) ->
    Current = current(Held),
    case weir_http_socket:public(Socket) of
        Socket ->
            _ = put(?MODULE, Current#current{joined = joined}),
            weir_group:join(Group, Socket, #{once => true});
        _ -> {error, tls}
    end.

current(Held) ->
    case get(?MODULE) of
        #current{held = Held} = Current -> Current;
        _ -> error(not_held)
    end.

%% @doc Encodes a response once, to answer all requests that have joined a group. Fails with
%% `{bad_return_value, Reply}', or with `{forbidden_field, Name, Value}'.
-spec frame({reply, weir_http_direct:status(), weir_http_direct:fields(), Body :: iodata()}) -> binary().
frame(Reply) -> weir_http_response:frame(Reply).

%% @doc Whether a frame answers a held request exactly as a response would. It does if the client speaks HTTP/1.1
%% without TLS, the connection stays open, and listener and route neither add fields nor compress. Otherwise the
%% request may still join a group. Call it only in callbacks of that request, like {@link join/2}.
-spec takes_frame(held()) -> boolean().
takes_frame(Held) ->
    #current{request = Request, wanted = Wanted} = current(Held),
    Wanted =:= keep andalso weir_http_request:is_1_1(Request) andalso not weir_http_request:is_tls(Request) andalso
        weir_http_request:added(Request) =:= [] andalso weir_http_request:gzip(Request) =:= off.

%% @private
-spec new(weir_http_socket:socket()) -> held().
new(Socket) -> {weir_http_held, Socket, make_ref()}.

%% @private
%% @doc Calls a fun in which the request may join groups. Returns its result and whether the request tried to join.
-spec in(held(), weir_http_request:request(), weir_http_response:wanted(), fun(() -> Result)) ->
    {Result, none | joined}.
in(Held, Request, Wanted, Fun) ->
    _ = put(?MODULE, #current{held = Held, request = Request, wanted = Wanted}),
    try
        Result = Fun(),
        #current{joined = Joined} = current(Held),
        {Result, Joined}
    after
        erase(?MODULE)
    end.
