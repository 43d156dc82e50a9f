%% The handler of the explorer. Responses contain the version of the routes, whether there is a log, and the id of the
%% request.
-module(weir_http_explorer_handler).
-behaviour(weir_http_direct).

-include("weir_http_explorer.hrl").

-export([routes/3]).
-export([handle/2]).
-export([open/2]).
-export([message/2]).
-export([info/2]).
-export([closed/2]).

%% Returns the routes of a version. One of them exists only in this version.
routes(Version, IsLogged, Run) ->
    State = {Version, IsLogged, Run},
    [
        {"/" ++ Path ++ "/:id", ?MODULE, State}
     || Path <- ["direct", "body", "process", "stream", "dies", "held", "events", "socket", only(Version)]
    ].

only(Version) -> "only" ++ integer_to_list(Version).

handle(Request, State = {Version, IsLogged, Run}) ->
    Id = weir_http_request:binding(id, Request),
    Said = said(Version, IsLogged, Id),
    [<<>>, Kind | _] = binary:split(weir_http_request:path(Request), <<"/">>, [global]),
    case Kind of
        <<"body">> -> {reply, 200, [], [Said, " ", weir_http_request:body(Request)]};
        <<"process">> -> {process, fun(_) -> erlang:yield(), {reply, 200, [], Said} end};
        <<"stream">> -> {process, fun(Begun) -> stream(Begun, Said) end};
        <<"dies">> -> {process, fun(Begun) -> die(Begun, State) end};
        <<"held">> -> {hold, ?MODULE, {held, Said, Run}, #{timeout => 30 * weir_test_wait:patience()}};
        <<"events">> -> {events, ?MODULE, {events, Said, Run}};
        <<"socket">> -> {websocket, ?MODULE, {socket, Said, Run}};
        _DirectOrOnly -> {reply, 200, [], Said}
    end.

said(Version, IsLogged, Id) -> iolist_to_binary(io_lib:format("~b ~p ~ts", [Version, IsLogged, Id])).

%% Sends as many chunks as the client asked for.
stream(Request, Said) ->
    [{<<"chunks">>, Chunks}] = weir_http_request:query_pairs(Request),
    ok = weir_http_process:stream(Request, 200, []),
    _ = weir_http_process:send(Said),
    _ = [weir_http_process:send(integer_to_binary(N)) || N <- lists:seq(1, binary_to_integer(Chunks))],
    streamed.

%% The process is killed before or within its response.
die(Request, _State) ->
    _ = rand:uniform(2) =:= 1 andalso weir_http_process:stream(Request, 200, []),
    _ = [erlang:yield() || _ <- lists:seq(1, rand:uniform(20))],
    exit(self(), kill),
    receive never -> streamed end.

open(Held, State = {held, Said, _Run}) ->
    ok = called(open, State),
    _ = spawn(fun() ->
        timer:sleep(rand:uniform(5) - 1),
        case rand:uniform(2) of
            1 -> weir_http_held:reply(Held, {reply, 200, [], Said});
            2 -> weir_http_held:tell(Held, answer)
        end
    end),
    {ok, State};
open(Stream, State = {events, Said, #run{group = Group}}) ->
    ok = called(open, State),
    %% The client may have disconnected.
    _ = weir_group:join(Group, Stream),
    {send, #{data => Said}, State};
open(_Socket, State = {socket, _, _}) ->
    ok = called(open, State),
    {ok, State}.

message({text, Text}, State = {socket, Said, _}) -> {send, {text, [Said, " ", Text]}, State}.

info(answer, {held, Said, _}) -> {reply, 200, [], Said}.

closed(_Reason, State) -> called(closed, State).

%% Records the callbacks in the order of their calls, which are sequential.
called(What, {Kind, Said, #run{seen = Seen}}) ->
    Key = {calls, Kind, Said},
    Before = lists:append([Calls || {_, Calls} <- ets:lookup(Seen, Key)]),
    true = ets:insert(Seen, {Key, Before ++ [What]}),
    ok.
