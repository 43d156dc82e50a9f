%% @doc A request, as handlers get it.
%%
%% It is cheap to make, and what is not asked for is not taken apart: fields are looked up in the bytes that came. What is
%% returned are parts of those bytes. Keep one for long (in a table, in a process) as a copy, `binary:copy/1', or it keeps up
%% to 64 KiB of what came with it.
-module(weir_http_request).

%% What a handler asks.
-export([method/1]).
-export([path/1]).
-export([query/1]).
-export([query_pairs/1]).
-export([version/1]).
-export([field/2, field/3]).
-export([fields/1]).
-export([cookies/1]).
-export([bindings/1]).
-export([binding/2]).
-export([body/1]).
-export([form/1]).
-export([trailers/1]).
-export([peer/1]).
-export([socket/1]).
-export([is_tls/1]).
-export([id/1]).

%% What connections make of it.
-export([new/4]).
-export([connection/1]).
-export([begun/1]).
-export([parts/1]).
-export([added/1]).
-export([with_gzip/2]).
-export([gzip/1]).
-export([add/2]).
-export([identify/2]).
-export([is_head/1]).
-export([is_keep_alive/1]).
-export([is_1_1/1]).
-export([is_plain/1]).
-export([expects_continue/1]).
-export([of_stream/2]).
-export([copy/1]).
-export([bind/2]).
-export([with_body/3]).

-export_type([request/0, client/0]).

-include("weir_http.hrl").

%% Names and values of a form: a megabyte of them would be fifty of terms.
-define(MOST_PAIRS, 1000).

%% Bytes that may be kept with a part of a request that stays.
-define(SPARE, 1024).

-record(request, {
    method :: 1..7 | binary(),
    path :: binary(),
    query :: binary() | undefined,
    fields :: binary(),
    flags :: non_neg_integer(),
    socket :: weir_http_socket:socket(),
    client :: client(),
    %% When it began, if somebody wants to hear of its end.
    begun :: integer() | undefined,
    id :: binary() | undefined,
    %% Fields that its response has, whatever the handler says.
    added = [] :: [{binary(), binary()}],
    gzip = off :: weir_http_gzip:gzip(),
    bindings = #{} :: #{atom() => term()},
    body = <<>> :: binary(),
    trailers = <<>> :: binary()
}).

-opaque request() :: #request{}.

-type client() :: {inet:ip_address(), inet:port_number()} | {local, binary()} | undefined.
%% Who is at the other end, where that is known without asking.

%% @private
%% @doc A request without a body, from the head that the native part has read. Client: who a PROXY header says it is.
-spec new(weir_http_nif:head(), weir_http_socket:socket(), client(), Begun :: integer() | undefined) -> request().
new({Method, Path, Query, Fields, Flags, _Length, _End}, Socket, Client, Begun) ->
    #request{
        method = Method,
        path = path_of(Path),
        query = Query,
        fields = Fields,
        flags = Flags,
        socket = Socket,
        client = Client,
        begun = Begun
    }.

path_of(undefined) -> <<"/">>;
path_of(Path) -> Path.

%% @private
-spec is_head(request()) -> boolean().
is_head(#request{method = Method}) -> Method =:= 2.

%% @private
%% @doc Whether the client wants the connection to stay open.
-spec is_keep_alive(request()) -> boolean().
is_keep_alive(#request{flags = Flags}) -> Flags band ?KEEP_ALIVE =/= 0.

%% @private
-spec is_1_1(request()) -> boolean().
is_1_1(#request{flags = Flags}) -> Flags band ?VERSION_1_1 =/= 0.

%% @private
%% @doc Whether the path has nothing that must be decoded or removed before it is compared.
-spec is_plain(request()) -> boolean().
is_plain(#request{flags = Flags}) -> Flags band ?PLAIN_PATH =/= 0.

%% @private
-spec expects_continue(request()) -> boolean().
expects_continue(#request{flags = Flags}) -> Flags band ?EXPECT_CONTINUE =/= 0.

%% @private
%% @doc What a process goes on with whose request is answered by a stream already: it has no path and no fields.
-spec of_stream(weir_http_socket:socket(), Is11 :: boolean()) -> request().
of_stream(Socket, Is11) ->
    Flags =
        case Is11 of
            true -> ?VERSION_1_1;
            false -> 0
        end,
    new({1, <<>>, undefined, <<>>, Flags, 0, 0}, Socket, undefined, undefined).

%% @private
%% @doc The same request, for one that stays until its body has come or it is answered: it keeps nothing of what came with it.
-spec copy(request()) -> request().
copy(Request = #request{path = Path, query = Query, fields = Fields, bindings = Bindings, body = Body}) ->
    Request#request{path = own(Path), query = own(Query), fields = own(Fields), bindings = own_all(Bindings), body = own(Body)}.

%% Mostly a request came alone: its parts keep one another, and hardly more.
own(Part) when is_binary(Part) ->
    case binary:referenced_byte_size(Part) - byte_size(Part) > ?SPARE of
        true -> binary:copy(Part);
        false -> Part
    end;
own(Other) ->
    Other.

%% Of a constraint that is a fun any term.
own_all(Bindings) when map_size(Bindings) =:= 0 -> Bindings;
own_all(Bindings) -> maps:map(fun(_Name, Value) -> own_value(Value) end, Bindings).

own_value(Segments) when is_list(Segments) -> [own(Segment) || Segment <- Segments];
own_value(Value) -> own(Value).

%% @private
-spec bind(#{atom() => term()}, request()) -> request().
bind(Bindings, Request) when map_size(Bindings) =:= 0 -> Request;
bind(Bindings, Request) -> Request#request{bindings = Bindings}.

%% @private
-spec with_body(Body :: binary(), Trailers :: binary(), request()) -> request().
with_body(Body, Trailers, Request) -> Request#request{body = Body, trailers = Trailers}.

%% @doc The method, in the case that it came in: `<<"GET">>'. HEAD is `<<"HEAD">>' also where a route says GET.
-spec method(request()) -> binary().
method(#request{method = Number}) when is_integer(Number) ->
    element(Number, {<<"GET">>, <<"HEAD">>, <<"POST">>, <<"PUT">>, <<"DELETE">>, <<"OPTIONS">>, <<"PATCH">>});
method(#request{method = Method}) ->
    Method.

%% @doc The path as it came, without the query: `<<"/caf%C3%A9">>'. {@link binding/2} has parts of it decoded.
-spec path(request()) -> binary().
path(#request{path = Path}) -> Path.

%% @doc What is behind the question mark, as it came; empty if there is none.
-spec query(request()) -> binary().
query(#request{query = undefined}) -> <<>>;
query(#request{query = Query}) -> Query.

%% @doc The names and values of the query in their order, decoded.
-spec query_pairs(request()) -> [{binary(), binary()}].
query_pairs(Request) -> weir_http_percent:pairs(query(Request)).

%% @doc `{1, 0}' or `{1, 1}'.
-spec version(request()) -> {1, 0 | 1}.
version(Request) ->
    case is_1_1(Request) of
        true -> {1, 1};
        false -> {1, 0}
    end.

%% @doc The value of a header field, by its name in any case; `undefined' if there is none. Several fields of the name are
%% joined by `, ', those of `cookie' by `; '.
-spec field(Name :: binary(), request()) -> binary() | undefined.
field(Name, #request{fields = Fields}) -> weir_http_nif:field(Fields, Name).

%% @doc {@link field/2} with a default.
-spec field(Name :: binary(), request(), Default) -> binary() | Default.
field(Name, Request, Default) ->
    case field(Name, Request) of
        undefined -> Default;
        Value -> Value
    end.

%% @doc All header fields in their order, with names in lower case.
-spec fields(request()) -> [{Name :: binary(), Value :: binary()}].
fields(#request{fields = Fields}) -> weir_http_nif:fields(Fields).

%% @doc The cookies in their order, as they came. What has no `=' is none.
-spec cookies(request()) -> [{Name :: binary(), Value :: binary()}].
cookies(Request) ->
    Pairs = binary:split(field(<<"cookie">>, Request, <<>>), <<";">>, [global]),
    [{weir_http_value:trim(Name), weir_http_value:trim(Value)} || Pair <- Pairs, [Name, Value] <- [binary:split(Pair, <<"=">>)]].

%% @doc What the bindings of the route stand for, decoded.
-spec bindings(request()) -> #{Name :: atom() => Value :: term()}.
bindings(#request{bindings = Bindings}) -> Bindings.

%% @doc What one of them stands for: a binary, the list of segments for a `*', or what its constraint has made of it. Fails
%% with `{badkey, Name}' if the route has none of the name.
-spec binding(Name :: atom(), request()) -> term().
binding(Name, #request{bindings = Bindings}) -> map_get(Name, Bindings).

%% @doc The body, whole; empty if there is none.
-spec body(request()) -> binary().
body(#request{body = Body}) -> Body.

%% @doc The names and values of a form (`application/x-www-form-urlencoded') in their order, decoded; `error' if the body
%% is said to be something else, or has more than 1000 of them. For `multipart/form-data' see {@link weir_http_multipart}.
-spec form(request()) -> {ok, [{binary(), binary()}]} | error.
form(Request = #request{body = Body}) ->
    case weir_http_value:parameters(field(<<"content-type">>, Request, <<>>)) of
        {<<"application/x-www-form-urlencoded">>, _} ->
            case length(binary:matches(Body, <<"&">>)) < ?MOST_PAIRS of
                true -> {ok, weir_http_percent:pairs(Body)};
                false -> error
            end;
        _ -> error
    end.

%% @doc The trailer fields of a chunked body. They are never mixed with those of the head: a program in between may not
%% have looked at them.
-spec trailers(request()) -> [{Name :: binary(), Value :: binary()}].
trailers(#request{trailers = Trailers}) -> weir_http_nif:fields(Trailers).

%% @doc Who sent the request: the source that a PROXY header names, where the listener has those, or the peer of the
%% connection. `{local, Path}' on a unix socket. `closed': the peer is gone already.
-spec peer(request()) ->
    {ok, {inet:ip_address(), inet:port_number()} | {local, binary()}} | {error, closed | inet:posix()}.
peer(#request{client = undefined, socket = Socket}) -> weir_http_socket:peername(Socket);
peer(#request{client = Client}) -> {ok, Client}.

%% @doc The connection, for `inet:getopts/2' and the like; of a listener with `tls' for `ssl:peercert/1' and the like. Nothing
%% may be sent on it.
-spec socket(request()) -> weir_tcp:socket() | ssl:sslsocket().
socket(#request{socket = Socket}) -> weir_http_socket:public(Socket).

%% @doc Whether it came through TLS. Then its connection has a process of its own, which runs what a reactor would.
-spec is_tls(request()) -> boolean().
is_tls(#request{socket = Socket}) -> weir_http_socket:is_tls(Socket).

%% @doc What the request is called in the log, in events and for its client, where the listener has `request_ids';
%% `undefined' otherwise.
-spec id(request()) -> binary() | undefined.
id(#request{id = Id}) -> Id.

%% @private
%% @doc Gives it a name and other fields that the response says.
-spec identify(Id :: binary(), request()) -> request().
identify(Id, Request) -> add([{<<"x-request-id">>, Id}], Request#request{id = Id}).

%% @private
-spec add([{binary(), binary()}], request()) -> request().
add(Fields, Request = #request{added = Added}) -> Request#request{added = Added ++ Fields}.

%% @private
%% @doc Says how its response is compressed.
-spec with_gzip(weir_http_gzip:gzip(), request()) -> request().
with_gzip(off, Request) -> Request;
with_gzip(Gzip, Request) -> Request#request{gzip = Gzip}.

%% @private
-spec gzip(request()) -> weir_http_gzip:gzip().
gzip(#request{gzip = Gzip}) -> Gzip.

%% @private
-spec added(request()) -> [{binary(), binary()}].
added(#request{added = Added}) -> Added.

%% @private
-spec begun(request()) -> integer() | undefined.
begun(#request{begun = Begun}) -> Begun.

%% @private
%% @doc What a log has of it.
-spec parts(request()) -> {binary(), binary(), binary() | undefined, boolean(), binary()}.
parts(Request = #request{path = Path, query = Query, fields = Fields}) ->
    {method(Request), Path, Query, is_1_1(Request), Fields}.

%% @private
%% @doc The connection, for ourselves.
-spec connection(request()) -> weir_http_socket:socket().
connection(#request{socket = Socket}) -> Socket.
