%% @private
%% @doc Controls a proxy over a unix socket: one line with a command, answered in JSON. A command is words with spaces
%% between them, or a JSON array of words, which may contain spaces. `bin/weir proxy' sends arrays.
%%
%% Only the user of the proxy can connect: the socket has mode 600.
-module(weir_proxy_control).

-export([adjust/3]).
-export([leave/2]).
-export([take_over/1]).
-export([serve/2]).
-export([ask/2]).
-export([answer/2]).
-export([plain/1]).

-define(LISTENER(Proxy, Path), {weir_proxy_control, Proxy, Path}).
-define(LINE_MAX, 4096).
-define(TIMEOUT, 5000).
%% Long, because a reload may wait for listeners.
-define(ANSWER_TIMEOUT, 60_000).

%% @doc Opens, moves or closes the control socket, as the configuration says. After an error the old one still listens.
-spec adjust(term(), Before :: binary() | off, Wanted :: binary() | off) -> ok | {error, term()}.
adjust(_Proxy, Same, Same) -> ok;
adjust(Proxy, Before, off) ->
    %% The listener is missing if it could not be opened after a take-over.
    _ = weir:stop_listener(?LISTENER(Proxy, Before)),
    ok;
adjust(Proxy, Before, Path) ->
    Options = #{ip => {local, Path}, mode => 8#600, max_connections => 16},
    case weir:start_listener(?LISTENER(Proxy, Path), Options, fun ?MODULE:serve/2, Proxy) of
        {ok, _} when Before =:= off -> ok;
        {ok, _} -> adjust(Proxy, Before, off);
        %% The proxy's process was killed, and this is its successor.
        {error, {already_started, _}} -> ok;
        {error, Reason} -> {error, {listen, <<"unix:", Path/binary>>, Reason}}
    end.

%% @doc Stops listening, so that another program can use the path. The connection that asked for this is still
%% answered.
-spec leave(term(), binary() | off) -> ok.
leave(_Proxy, off) ->
    ok;
leave(Proxy, Path) ->
    _ = weir:suspend_listener(?LISTENER(Proxy, Path)),
    ok.

%% @doc Serves one connection. The handler of the listener.
-spec serve(weir_tcp:socket(), term()) -> ok.
serve(Socket, Proxy) ->
    ok = inet:setopts(Socket, [{packet, line}, {packet_size, ?LINE_MAX}]),
    case gen_tcp:recv(Socket, 0, ?TIMEOUT) of
        {ok, Line} ->
            Answer = weir_json:encode(plain(answer(Proxy, words(Line)))),
            _ = gen_tcp:send(Socket, Answer),
            ok;
        {error, _} ->
            ok
    end.

words(<<"[", _/binary>> = Line) ->
    case weir_json:decode(Line) of
        {ok, Words} -> Words;
        {error, _} -> []
    end;
words(Line) ->
    binary:split(Line, [<<" ">>, <<"\r">>, <<"\n">>], [global, trim_all]).

%% @doc Asks the proxy of another program to leave, if there is one. Its path is free only after that. An error means
%% that it has not left; no answer counts as having left.
-spec take_over(binary()) -> ok | {error, {take_over, binary(), term()}}.
take_over(Path) ->
    case connect(Path) of
        {ok, Socket} ->
            case converse(Socket, <<"leave">>) of
                {ok, Json} -> left(Path, weir_json:decode(Json));
                {error, Reason} -> unanswered(Path, Reason)
            end;
        {error, Nobody} when Nobody =:= econnrefused; Nobody =:= enoent ->
            ok;
        {error, Reason} ->
            {error, {take_over, Path, Reason}}
    end.

left(_Path, {ok, #{<<"ok">> := true}}) -> ok;
left(Path, {ok, #{<<"error">> := Reason}}) -> {error, {take_over, Path, Reason}};
left(Path, {_, Other}) -> {error, {take_over, Path, Other}}.

%% The other proxy may have left or not. Go on: if it has not left, both serve, which is better than none.
unanswered(Path, Reason) ->
    What = "the other proxy has not answered the command to leave; this one takes over anyway",
    weir_reports:log(warning, #{what => What, control => Path, reason => Reason}).

%% @doc Sends a command to a proxy and returns its answer.
-spec ask(file:filename_all(), [unicode:chardata()]) -> {ok, weir_json:value()} | {error, term()}.
ask(Path, Words) ->
    case connect(Path) of
        {ok, Socket} ->
            case converse(Socket, weir_json:compact([text(Word) || Word <- Words])) of
                {ok, Json} -> weir_json:decode(Json);
                {error, _} = Error -> Error
            end;
        {error, _} = Error ->
            Error
    end.

%% An argument that is not UTF-8 cannot name anything.
text(Word) ->
    case unicode:characters_to_binary(Word) of
        Text when is_binary(Text) -> Text;
        _ -> <<>>
    end.

connect(Path) -> gen_tcp:connect({local, Path}, 0, [binary, {active, false}], ?TIMEOUT).

converse(Socket, Line) ->
    Answer =
        case gen_tcp:send(Socket, [Line, "\n"]) of
            ok -> read(Socket, []);
            {error, _} = Error -> Error
        end,
    ok = gen_tcp:close(Socket),
    Answer.

read(Socket, Read) ->
    case gen_tcp:recv(Socket, 0, ?ANSWER_TIMEOUT) of
        {ok, Data} -> read(Socket, [Read, Data]);
        {error, closed} when Read =/= [] -> {ok, iolist_to_binary(Read)};
        {error, _} = Error -> Error
    end.

%% @doc Returns the answer to a command.
-spec answer(term(), [binary()]) -> map().
answer(Proxy, [<<"status">>]) -> result(weir_proxy:info(Proxy));
answer(Proxy, [<<"servers">>]) ->
    case weir_proxy:info(Proxy) of
        {ok, #{backends := Backends}} -> #{ok => maps:map(fun(_Name, #{servers := Servers}) -> Servers end, Backends)};
        {error, _} = Error -> result(Error)
    end;
answer(Proxy, [<<"sessions">>]) -> #{ok => weir_proxy:sessions(Proxy)};
answer(Proxy, [<<"drain">>, Backend, Server]) -> result(weir_proxy:drain(Proxy, Backend, Server));
answer(Proxy, [<<"drain">>, Backend, Server, Seconds]) ->
    try binary_to_integer(Seconds) of
        Number -> result(weir_proxy:drain(Proxy, Backend, Server, 1000 * Number))
    catch
        error:badarg -> #{error => <<"SECONDS is not a number: drain BACKEND SERVER SECONDS">>}
    end;
answer(Proxy, [<<"leave">>]) -> result(weir_proxy_store:call(Proxy, leave));
answer(Proxy, [<<"enable">>, Backend, Server]) -> result(weir_proxy:enable(Proxy, Backend, Server));
answer(Proxy, [<<"disable">>, Backend, Server]) -> result(weir_proxy:disable(Proxy, Backend, Server));
answer(Proxy, [<<"close-sessions">>, Backend, Server]) -> close_sessions(Proxy, Backend, Server);
answer(Proxy, [<<"set-weight">>, Backend, Server, Weight]) ->
    try binary_to_integer(Weight) of
        Number -> result(weir_proxy:set_weight(Proxy, Backend, Server, Number))
    catch
        error:badarg -> #{error => <<"the weight must be a number from 0 to 256">>}
    end;
answer(Proxy, [<<"reload">>]) -> result(weir_proxy_file:reload(Proxy));
answer(_Proxy, _Words) ->
    #{error => <<
        "unknown command; valid: status, servers, sessions, drain B S [SECONDS], enable B S, disable B S, "
        "close-sessions B S, set-weight B S N, reload"
    >>}.

%% A server that was removed may still have sessions. A name with neither a session nor a server is an error.
close_sessions(Proxy, Backend, Server) ->
    case {weir_proxy:close_sessions(Proxy, Backend, Server), weir_proxy:servers(Proxy, Backend)} of
        {0, {ok, Servers}} ->
            case [Name || #{name := Name} <- Servers, Name =:= Server] of
                [] -> result({error, {no_server, Server}});
                _ -> #{ok => 0}
            end;
        {0, {error, _} = Error} -> result(Error);
        {Ended, _} -> #{ok => Ended}
    end.

result(ok) -> #{ok => true};
result({ok, Value}) -> #{ok => Value};
result({error, Reason}) -> #{error => unicode:characters_to_binary(weir_proxy_file:explain(Reason))}.

%% @doc Converts a term to one that JSON can express. Tuples become text.
-spec plain(term()) -> term().
plain(Map) when is_map(Map) -> maps:map(fun(_Key, Value) -> plain(Value) end, Map);
plain(List) when is_list(List) -> [plain(Value) || Value <- List];
plain(Tuple) when is_tuple(Tuple) -> unicode:characters_to_binary(io_lib:format("~0tp", [Tuple]));
plain(none) -> null;
plain(Value) -> Value.
