%% @doc Responses in gzip, by the option `gzip' of a listener or a route.
%%
%% The body of `{reply, Status, Fields, Body}' is compressed for clients that accept gzip (Accept-Encoding, with its
%% weights), if it is long enough and of a compressible type. `Vary: Accept-Encoding' is added to such responses even
%% where the client gets them uncompressed, for caches. A strong ETag becomes a weak one. Not compressed: responses
%% with Content-Encoding, Content-Range or `Cache-Control: no-transform', statuses without a body, 206, and bodies that
%% would not get shorter. Streams and files are not compressed either; files can have `.gz' and `.br' variants beside
%% them.
%%
%% Compressing 16 KiB takes 30 microseconds at level 1, 200 at 6 and 800 at 9. The reactor does it up to that size;
%% larger bodies of direct handlers are compressed by a process.
%%
%% Do not compress a page that contains a secret beside text from the request: its length leaks the secret (BREACH).
-module(weir_http_gzip).

-export([new/1]).
-export([encode/4]).
-export([is_work/2]).

-export_type([options/0, gzip/0]).

-type options() :: #{min_size => pos_integer(), types => [binary()], level => 1..9}.
%% `min_size' (1024): shorter bodies are not compressed. `types': media types without parameters, in lower case; by
%% default `text/*', `application/json', `application/javascript', `application/xml', `image/svg+xml' and all that end
%% in `+json' or `+xml'.
%% `level' (1, as in nginx): 9 takes several times as long for a tenth less.

-record(gzip, {min :: pos_integer(), types :: default | [binary()], level :: 1..9}).

-type gzip() :: #gzip{} | off.

%% Bytes that the reactor may compress itself.
-define(IN_REACTOR, 16384).

%% @private
%% @doc Checks the option.
-spec new(off | options()) -> {ok, gzip()} | {error, Value :: term(), Allowed :: string()}.
new(off) ->
    {ok, off};
new(Options) when is_map(Options) ->
    case [{Name, Value} || {Name, Value} <- maps:to_list(Options), not is_option(Name, Value)] of
        [] ->
            {ok, #gzip{
                min = maps:get(min_size, Options, 1024),
                types = maps:get(types, Options, default),
                level = maps:get(level, Options, 1)
            }};
        [Wrong | _] ->
            {error, Wrong, "min_size => bytes from 1 on, types => [binary()], level => 1..9"}
    end;
new(Other) ->
    {error, Other, "off, or a map of min_size, types and level"}.

is_option(min_size, Bytes) -> is_integer(Bytes) andalso Bytes > 0;
is_option(types, Types) -> is_list(Types) andalso lists:all(fun is_binary/1, Types);
is_option(level, Level) -> is_integer(Level) andalso Level >= 1 andalso Level =< 9;
is_option(_Name, _Value) -> false.

%% @private
%% @doc Whether compressing a body takes longer than a reactor may.
-spec is_work(Body :: term(), weir_http_request:request()) -> boolean().
is_work(Body, Request) ->
    weir_http_request:gzip(Request) =/= off andalso iolist_size(Body) > ?IN_REACTOR andalso is_taken(Request).

%% @private
%% @doc Returns the fields and the body to send.
-spec encode(weir_http_direct:status(), weir_http_direct:fields(), Body :: iodata(), weir_http_request:request()) ->
    {weir_http_direct:fields(), iodata()}.
encode(Status, Fields, Body, Request) ->
    case weir_http_request:gzip(Request) of
        off -> {Fields, Body};
        Gzip -> encode(Gzip, Status, Fields, Body, Request)
    end.

encode(Gzip = #gzip{min = Min}, Status, Fields, Body, Request) ->
    case iolist_size(Body) of
        Size when Size >= Min, Status =/= 204, Status =/= 206, Status =/= 304 ->
            Named = [{weir_http_value:lower(Name), Value} || {Name, Value} <- Fields],
            case is_meant(Named, Gzip) of
                true -> varied(Gzip, with_vary(Fields, Named), Size, Body, Request);
                false -> {Fields, Body}
            end;
        _ ->
            {Fields, Body}
    end.

varied(#gzip{level = Level}, Fields, Size, Body, Request) ->
    case is_taken(Request) andalso compress(Body, Level) of
        false ->
            {Fields, Body};
        Short ->
            case iolist_size(Short) < Size of
                true -> {[{<<"content-encoding">>, <<"gzip">>} | [weak(Field) || Field <- Fields]], Short};
                false -> {Fields, Body}
            end
    end.

is_taken(Request) ->
    weir_http_coding:accepted(weir_http_request:field(<<"accept-encoding">>, Request), [<<"gzip">>]) =/= [].

compress(Body, Level) ->
    Stream = zlib:open(),
    try
        %% 16: with header and checksum of gzip.
        ok = zlib:deflateInit(Stream, Level, deflated, 16 + 15, 8, default),
        zlib:deflate(Stream, Body, finish)
    after
        zlib:close(Stream)
    end.

is_meant(Named, #gzip{types = Types}) ->
    not lists:keymember(<<"content-encoding">>, 1, Named) andalso
        not lists:keymember(<<"content-range">>, 1, Named) andalso
        not has(<<"no-transform">>, <<"cache-control">>, Named) andalso
        is_type(Types, lists:keyfind(<<"content-type">>, 1, Named)).

is_type(_Types, false) ->
    false;
is_type(Types, {_, Value}) ->
    {Type, _} = weir_http_value:parameters(iolist_to_binary(Value)),
    case Types of
        default -> is_text(Type);
        _ -> lists:member(Type, Types)
    end.

is_text(<<"text/", _/binary>>) -> true;
is_text(<<"application/json">>) -> true;
is_text(<<"application/javascript">>) -> true;
is_text(<<"application/xml">>) -> true;
is_text(Type) -> re:run(Type, "\\+(json|xml)$") =/= nomatch.

with_vary(Fields, Named) ->
    case has(<<"accept-encoding">>, <<"vary">>, Named) orelse has(<<"*">>, <<"vary">>, Named) of
        true -> Fields;
        false -> [{<<"vary">>, <<"accept-encoding">>} | Fields]
    end.

has(Element, Name, Named) ->
    lists:any(
        fun(Text) -> weir_http_value:lower(weir_http_value:trim(Text)) =:= Element end,
        lists:append([binary:split(iolist_to_binary(Value), <<",">>, [global]) || {Of, Value} <- Named, Of =:= Name])
    ).

%% The compressed body has other bytes, so its ETag is weak (RFC 9110, 8.8.1).
weak({Name, Value}) ->
    case weir_http_value:lower(Name) of
        <<"etag">> ->
            case iolist_to_binary(Value) of
                <<"W/", _/binary>> = Weak -> {Name, Weak};
                Strong -> {Name, [<<"W/">>, Strong]}
            end;
        _ ->
            {Name, Value}
    end.
