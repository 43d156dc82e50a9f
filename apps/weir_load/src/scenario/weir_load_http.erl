%% @doc Scenario `http': requests over keep-alive connections.
%%
%% Responses need a Content-Length or chunked encoding. A status other than 2xx and 3xx is the error `http_STATUS'. The
%% server may close a connection that is idle, or after `Connection: close'.
-module(weir_load_http).
-behaviour(weir_load_scenario).

-export([describe/0]).
-export([init/1]).
-export([connect/2]).
-export([request/2]).
-export([response/2]).
-export([done/1]).

-record(http, {
    request :: binary(),
    has_body :: boolean(),
    %% The parser's state, and bytes that are not parsed yet.
    state = status :: status | {headers, 100..999, body(), boolean()} | {body, outcome(), boolean(), left()},
    part = <<>> :: binary()
}).

-type body() :: unknown | chunked | non_neg_integer().
-type outcome() :: answered | {failed, atom()}.
-type left() :: non_neg_integer() | chunk | {chunk, non_neg_integer()} | trailer.

-spec describe() -> weir_load_scenario:description().
describe() ->
    Text = fun(Text) -> {ok, Text} end,
    #{
        summary => "HTTP requests over connections that are kept alive",
        help => "The target is HOST:PORT or a URL, http://HOST:PORT/PATH or https://HOST:PORT/PATH.\n",
        held => false,
        alpn => [<<"http/1.1">>],
        options => [
            #{name => path, type => {text, fun path/1}, value => "PATH",
                help => "path to request (that of the URL, or /)"},
            #{name => method, type => {text, fun method/1}, value => "M", default => "GET", help => "method (GET)"},
            #{name => header, type => {texts, fun header/1}, value => "'N: V'", default => [],
                help => "a header line; may be given several times"},
            #{name => body, type => {text, Text}, value => "TEXT", default => "", help => "body of each request (none)"}
        ]
    }.

path("/" ++ _ = Path) -> token(Path, "a path without spaces is needed, such as /index.html");
path(_) -> {error, "a path that begins with / is needed"}.

method(Method) -> token(Method, "a method is needed, such as GET").

token(Text, Needed) ->
    case Text =/= "" andalso lists:all(fun(C) -> C > $\s andalso C < 127 end, Text) of
        true -> {ok, Text};
        false -> {error, Needed}
    end.

header(Line) ->
    case {string:split(Line, ":"), lists:any(fun(C) -> C < $\s end, Line)} of
        {[[_ | _] = Name, Value], false} -> {ok, {string:trim(Name), string:trim(Value)}};
        _ -> {error, "a header line is needed, such as 'Accept: text/html'"}
    end.

-spec init(#{atom() => term()}) -> {ok, #http{}}.
init(#{host := Host, port := Port, method := Method, header := Headers, body := Text} = Options) ->
    Path = maps:get(path, Options, "/"),
    Body = unicode:characters_to_binary(Text),
    Own = [string:lowercase(Name) || {Name, _} <- Headers],
    Defaults =
        [{"Host", [host(Host), [[":", integer_to_list(Port)] || Port =/= default_port(Options)]]}] ++
            [{"Content-Length", integer_to_list(byte_size(Body))} || Body =/= <<>>],
    All = [Header || {Name, _} = Header <- Defaults, not lists:member(string:lowercase(Name), Own)] ++ Headers,
    Lines = [[Name, ": ", Value, "\r\n"] || {Name, Value} <- All],
    Request = unicode:characters_to_binary([Method, " ", Path, " HTTP/1.1\r\n", Lines, "\r\n", Body]),
    {ok, #http{request = Request, has_body = Method =/= "HEAD"}}.

%% An IPv6 address is in brackets.
host(Host) ->
    case lists:member($:, Host) of
        true -> ["[", Host, "]"];
        false -> Host
    end.

default_port(#{tls := true}) -> 443;
default_port(_Options) -> 80.

-spec connect(pos_integer(), #http{}) -> {ok, #http{}}.
connect(_Number, Http) -> {ok, Http}.

-spec request(pos_integer(), #http{}) -> {ok, iodata(), #http{}}.
request(_Sequence, #http{request = Request} = Http) -> {ok, Request, Http}.

-spec response(binary(), #http{}) -> {ok, [weir_load_scenario:event()], #http{}} | {error, atom()}.
response(Data, #http{part = <<>>} = Http) -> read(Data, Http, []);
response(Data, #http{part = Part} = Http) -> read(<<Part/binary, Data/binary>>, Http#http{part = <<>>}, []).

read(<<>>, Http, Events) ->
    {ok, lists:reverse(Events), Http};
read(Bytes, #http{state = status} = Http, Events) ->
    case erlang:decode_packet(http_bin, Bytes, [{line_length, 16384}]) of
        {ok, {http_response, {1, Minor}, Status, _}, Rest} when Status >= 100, Status =< 999 ->
            read(Rest, Http#http{state = {headers, Status, unknown, Minor =:= 0}}, Events);
        {more, _} when byte_size(Bytes) < 16384 ->
            {ok, lists:reverse(Events), Http#http{part = Bytes}};
        _ ->
            {error, bad_response}
    end;
read(Bytes, #http{state = {headers, Status, Body, Closes}} = Http, Events) ->
    case erlang:decode_packet(httph_bin, Bytes, [{line_length, 16384}]) of
        {ok, http_eoh, Rest} ->
            body(Rest, Status, Body, Closes, Http, Events);
        {ok, {http_header, _, Name, _, Value}, Rest} ->
            case header(Name, Value, Body, Closes) of
                {error, _} = Error -> Error;
                {NowBody, NowCloses} -> read(Rest, Http#http{state = {headers, Status, NowBody, NowCloses}}, Events)
            end;
        {more, _} when byte_size(Bytes) < 16384 ->
            {ok, lists:reverse(Events), Http#http{part = Bytes}};
        _ ->
            {error, bad_response}
    end;
read(Bytes, #http{state = {body, Outcome, Closes, Left}} = Http, Events) ->
    case skip(Bytes, Left) of
        {done, Rest} -> complete(Rest, Outcome, Closes, Http, Events);
        {more, Still, Part} ->
            {ok, lists:reverse(Events), Http#http{state = {body, Outcome, Closes, Still}, part = Part}};
        {error, _} = Error -> Error
    end.

header('Content-Length', Value, unknown, Closes) ->
    try binary_to_integer(Value) of
        Length when Length >= 0 -> {Length, Closes};
        _ -> {error, bad_response}
    catch
        error:badarg -> {error, bad_response}
    end;
header('Transfer-Encoding', Value, _Body, Closes) ->
    case string:lowercase(Value) of
        <<"chunked">> -> {chunked, Closes};
        _ -> {error, bad_response}
    end;
header('Connection', Value, Body, Closes) ->
    case string:lowercase(Value) of
        <<"close">> -> {Body, true};
        <<"keep-alive">> -> {Body, false};
        _ -> {Body, Closes}
    end;
header(_Name, _Value, Body, Closes) ->
    {Body, Closes}.

%% 1xx: the final response follows.
body(Rest, Status, _Body, _Closes, Http, Events) when Status < 200 ->
    read(Rest, Http#http{state = status}, Events);
body(Rest, Status, Body, Closes, #http{has_body = HasBody} = Http, Events) ->
    Outcome =
        case Status < 400 of
            true -> answered;
            false -> {failed, list_to_atom("http_" ++ integer_to_list(Status))}
        end,
    case Body of
        _ when not HasBody; Status =:= 204; Status =:= 304; Body =:= 0 -> complete(Rest, Outcome, Closes, Http, Events);
        unknown -> {error, no_length};
        chunked -> read(Rest, Http#http{state = {body, Outcome, Closes, chunk}}, Events);
        Length -> read(Rest, Http#http{state = {body, Outcome, Closes, Length}}, Events)
    end.

complete(_Rest, Outcome, true, Http, Events) ->
    {ok, lists:reverse(Events, [Outcome, close]), Http};
complete(Rest, Outcome, false, Http, Events) ->
    read(Rest, Http#http{state = status}, [Outcome | Events]).

%% Skips the bytes of a body that have come.
skip(Bytes, Left) when is_integer(Left) ->
    case Bytes of
        <<_:Left/binary, Rest/binary>> -> {done, Rest};
        _ -> {more, Left - byte_size(Bytes), <<>>}
    end;
skip(Bytes, {chunk, Left}) ->
    case skip(Bytes, Left) of
        {done, Rest} -> skip(Rest, chunk);
        {more, Still, Part} -> {more, {chunk, Still}, Part}
    end;
skip(Bytes, chunk) ->
    case binary:split(Bytes, <<"\r\n">>) of
        [Line, Rest] ->
            [Digits | _] = binary:split(Line, <<";">>),
            try binary_to_integer(string:trim(Digits), 16) of
                0 -> skip(Rest, trailer);
                %% The chunk and its CRLF.
                Size when Size > 0 -> skip(Rest, {chunk, Size + 2});
                _ -> {error, bad_response}
            catch
                error:badarg -> {error, bad_response}
            end;
        [_] when byte_size(Bytes) < 1024 ->
            {more, chunk, Bytes};
        _ ->
            {error, bad_response}
    end;
skip(Bytes, trailer) ->
    case binary:split(Bytes, <<"\r\n">>) of
        [<<>>, Rest] -> {done, Rest};
        [_Line, Rest] -> skip(Rest, trailer);
        [_] when byte_size(Bytes) < 16384 -> {more, trailer, Bytes};
        _ -> {error, bad_response}
    end.

-spec done(#http{}) -> ok.
done(_Http) -> ok.
