%% @private
%% @doc Asks the agent of a server for the server's state, as HAProxy's `agent-check' does: the agent sends a line to
%% each connection.
-module(weir_proxy_agent).

-export([options/2]).
-export([ask/2]).
-export([parse/1]).

-export_type([answer/0]).

-type answer() :: #{
    is_up => boolean(), admin => ready | drain | maint, percent => 0..256, max_connections => pos_integer()
}.
%% The agent's answer. What a later answer leaves out stays.

%% Most bytes of a line.
-define(LONGEST, 1024).

%% @doc Checks the option `agent' of a backend.
-spec options(weir_proxy_schema:path(), term()) -> weir_proxy_config:agent().
options(Path, Map) ->
    Options = weir_proxy_schema:table(Path, Map, [
        {port, weir_proxy_schema:integer(1, 65535)},
        {interval, weir_proxy_schema:time(10), 2000},
        {timeout, weir_proxy_schema:time(1), 2000},
        {send, weir_proxy_schema:text(), <<>>}
    ]),
    Options#{kind => agent}.

%% @doc Asks an agent once. Takes at most the `timeout' of the options.
-spec ask(weir_tcp:name(), weir_proxy_config:agent()) -> {ok, answer()} | {error, term()}.
ask({Address, Port}, #{timeout := Timeout, send := Question}) ->
    Deadline = erlang:monotonic_time(millisecond) + Timeout,
    case weir_tcp:connect(Address, Port, [binary, {active, false}, {nodelay, true}], Timeout) of
        {ok, Socket} ->
            _ = Question =:= <<>> orelse gen_tcp:send(Socket, Question),
            Line = line(Socket, Deadline, <<>>),
            ok = gen_tcp:close(Socket),
            case Line of
                {ok, Text} -> parse(Text);
                {error, _} = Error -> Error
            end;
        {error, _} = Error ->
            Error
    end.

%% Reads up to the end of the line or of the connection.
line(Socket, Deadline, Before) ->
    case gen_tcp:recv(Socket, 0, max(0, Deadline - erlang:monotonic_time(millisecond))) of
        {ok, Data} ->
            All = <<Before/binary, Data/binary>>,
            case binary:split(All, [<<"\n">>, <<"\r">>]) of
                [Line, _] -> {ok, Line};
                [_] when byte_size(All) < ?LONGEST -> line(Socket, Deadline, All);
                [_] -> {error, {unexpected, binary:part(All, 0, 64)}}
            end;
        {error, closed} when Before =/= <<>> -> {ok, Before};
        {error, _} = Error -> Error
    end.

%% @doc Parses a line: words such as `up', `75%', `maxconn:30', `drain', in any order, separated by blanks or commas.
%% `#' begins a comment.
-spec parse(binary()) -> {ok, answer()} | {error, {unexpected, binary()}}.
parse(Line) ->
    [Words | _] = binary:split(Line, <<"#">>),
    %% string:lexemes/2 would raise for bytes that are not UTF-8.
    words(
        [
            weir_proxy_first_bytes:lower(Word)
         || Word <- binary:split(Words, [<<",">>, <<" ">>, <<"\t">>], [global, trim_all])
        ],
        #{}
    ).

words([], Answer) ->
    {ok, Answer};
words([Word | Words], Answer) ->
    case word(Word) of
        {Name, Value} -> words(Words, Answer#{Name => Value});
        unknown -> {error, {unexpected, Word}}
    end.

word(<<"up">>) -> {is_up, true};
word(<<"down">>) -> {is_up, false};
word(<<"failed">>) -> {is_up, false};
word(<<"fail">>) -> {is_up, false};
word(<<"stopped">>) -> {is_up, false};
word(<<"ready">>) -> {admin, ready};
word(<<"drain">>) -> {admin, drain};
word(<<"maint">>) -> {admin, maint};
word(<<"maxconn:", Most/binary>>) -> number(max_connections, Most, 1, 16#ffffffff);
word(Word) ->
    case binary:split(Word, <<"%">>) of
        [Percent, <<>>] -> number(percent, Percent, 0, 256);
        _ -> unknown
    end.

number(Name, Text, Least, Most) ->
    try binary_to_integer(Text) of
        Number when Number >= Least, Number =< Most -> {Name, Number};
        _ -> unknown
    catch
        error:badarg -> unknown
    end.
