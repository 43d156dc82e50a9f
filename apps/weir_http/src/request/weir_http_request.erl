%% @doc A request, as handlers get it.
%%
%% A request is cheap to make: fields are parsed only when you look them up. The binaries returned are parts of the
%% bytes received. Copy those that you keep for long (in a table, in a process) with `binary:copy/1'; otherwise each
%% keeps up to 64 KiB alive.
-module(weir_http_request).

%% For handlers.
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

%% For connections.
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

%% Pairs in a form. A megabyte of pairs would become fifty megabytes of terms.
-define(MOST_PAIRS, 1000).

%% Bytes that a kept part of a request may keep alive besides its own.
-define(SPARE, 1024).

-record(request, {
    method :: 1..7 | binary(),
    path :: binary(),
    query :: binary() | undefined,
    fields :: binary(),
    flags :: non_neg_integer(),
    socket :: weir_http_socket:socket(),
    client :: client(),
    %% When it began; undefined if no event handler or log wants it.
    begun :: integer() | undefined,
    id :: binary() | undefined,
    %% Fields that the response has in addition to those of the handler.
    added = [] :: [{binary(), binary()}],
    gzip = off :: weir_http_gzip:gzip(),
    bindings = #{} :: #{atom() => term()},
    body = <<>> :: binary(),
    trailers = <<>> :: binary()
}).

-opaque request() :: #request{}.

-type client() :: {inet:ip_address(), inet:port_number()} | {local, binary()} | undefined.
%% The peer, where it is known without a call: from a PROXY header, or for log and events.

%% @private
%% @doc Returns a request without a body, from the head that the native part has parsed. Client: the peer, if it is
%% known.
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
%% @doc Whether the client wants the connection kept open.
-spec is_keep_alive(request()) -> boolean().
is_keep_alive(#request{flags = Flags}) -> Flags band ?KEEP_ALIVE =/= 0.

%% @private
-spec is_1_1(request()) -> boolean().
is_1_1(#request{flags = Flags}) -> Flags band ?VERSION_1_1 =/= 0.

%% @private
%% @doc Whether the path can be compared as it is: nothing to decode, no dot segments.
-spec is_plain(request()) -> boolean().
is_plain(#request{flags = Flags}) -> Flags band ?PLAIN_PATH =/= 0.

%% @private
-spec expects_continue(request()) -> boolean().
expects_continue(#request{flags = Flags}) -> Flags band ?EXPECT_CONTINUE =/= 0.

%% @private
%% @doc Returns a request without path and fields, for a process that continues a response begun by a stream.
-spec of_stream(weir_http_socket:socket(), Is11 :: boolean()) -> request().
of_stream(Socket, Is11) ->
    Flags =
        case Is11 of
            true -> ?VERSION_1_1;
            false -> 0
        end,
    new({1, <<>>, undefined, <<>>, Flags, 0, 0}, Socket, undefined, undefined).

%% @private
%% @doc Copies the parts of a request that waits for its body or its response, unless they keep little else alive.
-spec copy(request()) -> request().
copy(Request = #request{path = Path, query = Query, fields = Fields, bindings = Bindings, body = Body}) ->
    Request#request{
        path = own(Path), query = own(Query), fields = own(Fields), bindings = own_all(Bindings), body = own(Body)
    }.

%% Most requests arrive alone: then their parts keep hardly more than one another alive.
own(Part) when is_binary(Part) ->
    case binary:referenced_byte_size(Part) - byte_size(Part) > ?SPARE of
        true -> binary:copy(Part);
        false -> Part
    end;
own(Other) ->
    Other.

%% A constraint that is a fun may return any term.
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

%% @doc Returns the method in the case in which it was sent: `<<"GET">>'. HEAD is `<<"HEAD">>', also on a route for
%% GET.
-spec method(request()) -> binary().
method(#request{method = Number}) when is_integer(Number) ->
    element(Number, {<<"GET">>, <<"HEAD">>, <<"POST">>, <<"PUT">>, <<"DELETE">>, <<"OPTIONS">>, <<"PATCH">>});
method(#request{method = Method}) ->
    Method.

%% @doc Returns the path as received, without the query: `<<"/caf%C3%A9">>'. {@link binding/2} returns decoded parts of
%% it.
-spec path(request()) -> binary().
path(#request{path = Path}) -> Path.

%% @doc Returns the text after the question mark, as received; empty if there is none.
-spec query(request()) -> binary().
query(#request{query = undefined}) -> <<>>;
query(#request{query = Query}) -> Query.

%% @doc Returns the names and values of the query in their order, decoded.
-spec query_pairs(request()) -> [{binary(), binary()}].
query_pairs(Request) -> weir_http_percent:pairs(query(Request)).

%% @doc Returns `{1, 0}' or `{1, 1}'.
-spec version(request()) -> {1, 0 | 1}.
version(Request) ->
    case is_1_1(Request) of
        true -> {1, 1};
        false -> {1, 0}
    end.

%% @doc Returns the value of a header field, or `undefined'. The case of the name does not matter. Several fields of
%% the same name are joined with `, ', those of `cookie' with `; '.
-spec field(Name :: binary(), request()) -> binary() | undefined.
field(Name, #request{fields = Fields}) -> weir_http_nif:field(Fields, Name).

%% @doc {@link field/2} with a default.
-spec field(Name :: binary(), request(), Default) -> binary() | Default.
field(Name, Request, Default) ->
    case field(Name, Request) of
        undefined -> Default;
        Value -> Value
    end.

%% @doc Returns all header fields in their order, with names in lower case.
-spec fields(request()) -> [{Name :: binary(), Value :: binary()}].
fields(#request{fields = Fields}) -> weir_http_nif:fields(Fields).

%% @doc Returns the cookies in their order, as received. Pairs without `=' are left out.
-spec cookies(request()) -> [{Name :: binary(), Value :: binary()}].
cookies(Request) ->
    Pairs = binary:split(field(<<"cookie">>, Request, <<>>), <<";">>, [global]),
    [
        {weir_http_value:trim(Name), weir_http_value:trim(Value)}
     || Pair <- Pairs, [Name, Value] <- [binary:split(Pair, <<"=">>)]
    ].

%% @doc Returns the values of the bindings of the route, decoded.
-spec bindings(request()) -> #{Name :: atom() => Value :: term()}.
bindings(#request{bindings = Bindings}) -> Bindings.

%% @doc Returns the value of a binding: a binary, the list of segments for a `*', or what its constraint returned.
%% Fails with `{badkey, Name}' if the route has no such binding.
-spec binding(Name :: atom(), request()) -> term().
binding(Name, #request{bindings = Bindings}) -> map_get(Name, Bindings).

%% @doc Returns the whole body; empty if there is none.
-spec body(request()) -> binary().
body(#request{body = Body}) -> Body.

%% @doc Returns the names and values of a form (`application/x-www-form-urlencoded') in their order, decoded. Returns
%% `error' if the Content-Type is another, or if there are more than 1000 pairs. For `multipart/form-data' see
%% {@link weir_http_multipart}.
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

%% @doc Returns the trailer fields of a chunked body. They are never merged into the header fields, because proxies may
%% not have checked them.
-spec trailers(request()) -> [{Name :: binary(), Value :: binary()}].
trailers(#request{trailers = Trailers}) -> weir_http_nif:fields(Trailers).

%% @doc Returns the peer: the source in the PROXY header if the listener expects one, otherwise the peer of the
%% connection. `{local, Path}' on a unix socket. `closed': the peer has disconnected.
-spec peer(request()) ->
    {ok, {inet:ip_address(), inet:port_number()} | {local, binary()}} | {error, closed | inet:posix()}.
peer(#request{client = undefined, socket = Socket}) -> weir_http_socket:peername(Socket);
peer(#request{client = Client}) -> {ok, Client}.

%% @doc Returns the socket of the connection, for `inet:getopts/2' and the like; on a listener with `tls', for
%% `ssl:peercert/1' and the like. Do not send on it.
-spec socket(request()) -> weir_tcp:socket() | ssl:sslsocket().
socket(#request{socket = Socket}) -> weir_http_socket:public(Socket).

%% @doc Whether the request came over TLS. Then the connection has its own process instead of a reactor.
-spec is_tls(request()) -> boolean().
is_tls(#request{socket = Socket}) -> weir_http_socket:is_tls(Socket).

%% @doc Returns the id of the request, as in the log, in events and in the response; `undefined' unless the listener
%% has `request_ids'.
-spec id(request()) -> binary() | undefined.
id(#request{id = Id}) -> Id.

%% @private
%% @doc Sets the id, and adds the field `x-request-id' to the response.
-spec identify(Id :: binary(), request()) -> request().
identify(Id, Request) -> add([{<<"x-request-id">>, Id}], Request#request{id = Id}).

%% @private
-spec add([{binary(), binary()}], request()) -> request().
add(Fields, Request = #request{added = Added}) -> Request#request{added = Added ++ Fields}.

%% @private
%% @doc Sets how the response is compressed.
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
%% @doc Returns the parts that the access log writes.
-spec parts(request()) -> {binary(), binary(), binary() | undefined, boolean(), binary()}.
parts(Request = #request{path = Path, query = Query, fields = Fields}) ->
    {method(Request), Path, Query, is_1_1(Request), Fields}.

%% @private
%% @doc Returns the socket for internal use.
-spec connection(request()) -> weir_http_socket:socket().
connection(#request{socket = Socket}) -> Socket.
