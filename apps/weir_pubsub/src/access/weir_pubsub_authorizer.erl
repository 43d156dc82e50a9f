%% @doc Permissions by an HTTP server that is asked: 2xx is yes, 4xx is no. A node has one such server, as it has one
%% configuration.
%%
%% A question is the lines of a request: what is known of a client, and what it wants. An answer holds for a time, for
%% all clients with the same question. The number of questions at a time is limited. A client beyond the limit, or
%% without an answer, is refused.
-module(weir_pubsub_authorizer).
-behaviour(gen_server).

-export([start_link/0]).
-export([configure/1]).
-export([question/3]).
-export([known/1]).
-export([allows/1]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2, format_status/1]).

-export_type([server/0, question/0]).

-type server() :: #{
    host := string(),
    port := inet:port_number(),
    target := binary(),
    cacerts => none | system | [public_key:der_encoded()],
    timeout := pos_integer(),
    cache := non_neg_integer(),
    max_concurrent := pos_integer()
}.
%% `cacerts': `none' (the default) is plain HTTP. Otherwise it is HTTPS, and the server needs a certificate signed by
%% one of these authorities: those that the operating system trusts (`system'), or a list. `timeout', and `cache', how
%% long an answer holds, are milliseconds.

-type question() :: binary().

-type name() :: binary().

-record(asker, {
    server = none :: server() | none,
    %% By the monitor of the process that asks: the server, which may have been replaced since, and the question. This
    %% state is logged if the process fails, and questions have secrets of clients, so only their names are in it.
    running = #{} :: #{reference() => {server(), name()}},
    waiting = #{} :: #{{server(), name()} => [gen_server:from(), ...]},
    reports :: weir_reports:limit()
}).

%% Answers that are kept at most. When there are more, all are forgotten.
-define(MOST_KNOWN, 10000).

%% @private
-spec start_link() -> {ok, pid()} | {error, term()}.
start_link() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).

%% @doc Sets the server that is asked from now on. Earlier answers are forgotten.
-spec configure(server() | none) -> ok.
configure(Server) ->
    _ =
        is_map(Server) andalso maps:get(cacerts, Server, none) =/= none andalso
            ({ok, _} = application:ensure_all_started(ssl)),
    gen_server:call(?MODULE, {configure, Server}, infinity).

%% @doc Returns the question whether the client of a request has a right in a channel: the right, the channel, the
%% client's address, and the fields that identify the client. A token in the query is sent as the field
%% `Authorization'.
-spec question(weir_pubsub_access:right(), weir_http_request:request(), weir_pubsub:channel()) -> question().
question(Right, Request, Channel) ->
    Said = [
        {Name, weir_http_request:field(Name, Request)}
     || Name <- [<<"authorization">>, <<"cookie">>, <<"origin">>]
    ],
    iolist_to_binary([
        ["weir-right: ", atom_to_binary(Right), "\r\nweir-channel: ", weir_http_percent:encode(Channel), "\r\n"],
        address(weir_http_request:peer(Request)),
        [[Name, ": ", Value, "\r\n"] || {Name, Value} <- with_token(Said, Request), Value =/= undefined]
    ]).

with_token([{Name, undefined} | Others] = Said, Request) ->
    case lists:keyfind(<<"access_token">>, 1, weir_http_request:query_pairs(Request)) of
        %% It was decoded, and may have any bytes.
        {_, Token} -> [{Name, ["Bearer ", weir_http_percent:encode(Token)]} | Others];
        false -> Said
    end;
with_token(Said, _Request) ->
    Said.

address({ok, {Ip, _Port}}) when is_tuple(Ip) ->
    case inet:ntoa(Ip) of
        Text when is_list(Text) -> ["x-forwarded-for: ", Text, "\r\n"];
        _ -> []
    end;
address(_) ->
    [].

%% @doc Returns the answer to a question, if it was answered a short time ago.
-spec known(question()) -> {ok, boolean()} | unknown.
known(Question) ->
    Now = erlang:monotonic_time(millisecond),
    try ets:lookup(?MODULE, name(Question)) of
        [{_, IsAllowed, Until}] when Until > Now -> {ok, IsAllowed};
        _ -> unknown
    catch
        error:badarg -> unknown
    end.

%% A hash, because questions may be long.
name(Question) -> crypto:hash(sha256, Question).

%% @doc Asks, and waits for the answer. Without an answer it returns false.
-spec allows(question()) -> boolean().
allows(Question) ->
    try
        %% The process that asks has a timeout.
        gen_server:call(?MODULE, {ask, Question}, infinity)
    catch
        exit:_ -> failed()
    end.

failed() ->
    ok = weir_pubsub_counters:add(ask_failures, 1),
    false.

%% @private
-spec init([]) -> {ok, #asker{}}.
init([]) ->
    ?MODULE = ets:new(?MODULE, [named_table, {read_concurrency, true}]),
    {ok, #asker{server = application:get_env(weir_pubsub, asker, none), reports = weir_reports:new_limit()}}.

%% @private
-spec handle_call({configure, server() | none} | {ask, question()}, gen_server:from(), #asker{}) ->
    {reply, ok | boolean(), #asker{}} | {noreply, #asker{}}.
handle_call({configure, Server}, _From, Asker) ->
    %% After a restart the same server is asked.
    ok = application:set_env(weir_pubsub, asker, Server),
    true = ets:delete_all_objects(?MODULE),
    {reply, ok, Asker#asker{server = Server}};
handle_call({ask, Question}, From, #asker{server = Server, waiting = Waiting} = Asker) ->
    Asked = {Server, name(Question)},
    case {known(Question), Waiting} of
        {{ok, IsAllowed}, _} ->
            {reply, IsAllowed, Asker};
        {unknown, #{Asked := Others}} ->
            {noreply, Asker#asker{waiting = Waiting#{Asked := [From | Others]}}};
        {unknown, #{}} ->
            begin_to_ask(Question, From, Asker)
    end.

begin_to_ask(_Question, _From, #asker{server = none} = Asker) ->
    {reply, failed(), Asker};
begin_to_ask(_Question, _From, #asker{server = #{max_concurrent := Most}, running = Running} = Asker) when
    map_size(Running) >= Most
->
    {reply, failed(), Asker};
begin_to_ask(Question, From, #asker{server = Server, running = Running, waiting = Waiting} = Asker) ->
    ok = weir_pubsub_counters:add(asked, 1),
    {_, Monitor} = spawn_monitor(weir_pubsub_authorization_request, run, [Server, Question]),
    Asked = {Server, name(Question)},
    {noreply, Asker#asker{running = Running#{Monitor => Asked}, waiting = Waiting#{Asked => [From]}}}.

%% @private
-spec handle_cast(term(), #asker{}) -> {noreply, #asker{}}.
handle_cast(_Request, Asker) -> {noreply, Asker}.

%% @private
-spec handle_info(term(), #asker{}) -> {noreply, #asker{}}.
handle_info({'DOWN', Monitor, process, _, Reason}, #asker{running = Running, waiting = Waiting} = Asker) when
    is_map_key(Monitor, Running)
->
    {Asked, Left} = maps:take(Monitor, Running),
    {Who, Others} = maps:take(Asked, Waiting),
    IsAllowed = answered(Reason, Asked, Asker),
    lists:foreach(fun(From) -> gen_server:reply(From, IsAllowed) end, Who),
    {noreply, Asker#asker{running = Left, waiting = Others}};
handle_info(_Other, Asker) ->
    {noreply, Asker}.

answered({answer, {ok, IsAllowed}}, {Server, Name}, #asker{server = Now}) ->
    _ = Server =:= Now andalso keep(Name, IsAllowed, Server),
    IsAllowed;
answered(Reason, _Asked, #asker{reports = Reports}) ->
    Why = case Reason of {answer, {error, Error}} -> Error; _ -> Reason end,
    What = "the server that decides who may use channels does not answer, and clients are refused",
    ok = weir_reports:log(warning, #{what => What, reason => Why}, Reports),
    failed().

keep(Name, IsAllowed, #{cache := Cache}) when Cache > 0 ->
    ets:info(?MODULE, size) < ?MOST_KNOWN orelse ets:delete_all_objects(?MODULE),
    true = ets:insert(?MODULE, {Name, IsAllowed, erlang:monotonic_time(millisecond) + Cache}),
    ok;
keep(_Name, _IsAllowed, #{cache := 0}) ->
    ok.

%% @private
-spec format_status(gen_server:format_status()) -> gen_server:format_status().
format_status(#{message := _} = Status) -> Status#{message := hidden};
format_status(Status) -> Status.
