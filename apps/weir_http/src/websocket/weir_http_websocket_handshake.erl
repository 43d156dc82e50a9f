%% @private
%% @doc The handshake (RFC 6455, 4.2): checks the request and makes the response.
-module(weir_http_websocket_handshake).

-export([respond/3]).
-export([protocols/1]).

-include("weir_http.hrl").
-include("weir_http_websocket.hrl").

%% @doc Returns the response and the negotiated compression, or why the handshake is refused. Fails if options do not
%% fit the request.
-spec respond(weir_http_request:request(), weir_http_websocket:options(), #settings{}) ->
    {ok, iodata(), none | weir_http_websocket_deflate:deflate()}
    | {refused, 400 | 403 | 426, weir_http_direct:fields(), Reason :: iodata()}.
respond(Request, Options, Settings) ->
    case check(Request, Settings) of
        {ok, Accept} -> accepted(Accept, Request, Options, Settings);
        Refused -> Refused
    end.

check(Request, #settings{origins = Origins}) ->
    IsUpgrade =
        weir_http_request:is_1_1(Request) andalso weir_http_request:method(Request) =:= <<"GET">> andalso
            has(<<"websocket">>, <<"upgrade">>, Request) andalso has(<<"upgrade">>, <<"connection">>, Request),
    case IsUpgrade andalso weir_http_request:field(<<"sec-websocket-version">>, Request) of
        <<"13">> ->
            case weir_http_nif:accept(weir_http_request:field(<<"sec-websocket-key">>, Request, <<>>)) of
                bad_key -> {refused, 400, [], "sec-websocket-key\n"};
                Accept -> allowed(Accept, weir_http_request:field(<<"origin">>, Request), Origins, Request)
            end;
        _ ->
            Fields = [{<<"upgrade">>, <<"websocket">>}, {<<"sec-websocket-version">>, <<"13">>}],
            {refused, 426, Fields, "websocket, version 13\n"}
    end.

%% Whether a comma-separated list contains the token, in any case.
has(Token, Name, Request) ->
    List = weir_http_request:field(Name, Request, <<>>),
    lists:member(Token, [
        weir_http_value:lower(weir_http_value:trim(Part))
     || Part <- binary:split(List, <<",">>, [global])
    ]).

allowed(Accept, Origin, Origins, Request) ->
    case is_allowed(Origin, Origins, Request) of
        true -> {ok, Accept};
        false -> {refused, 403, [], "origin\n"}
    end.

is_allowed(_Origin, any, _Request) ->
    true;
is_allowed(undefined, _Origins, _Request) ->
    true;
is_allowed(Origin, same, Request) ->
    case binary:split(weir_http_value:lower(Origin), <<"://">>) of
        [Scheme, Authority] ->
            Host = weir_http_value:lower(weir_http_request:field(<<"host">>, Request, <<>>)),
            without_port(Scheme, Authority) =:= without_port(Scheme, Host);
        %% Also `null', the origin of sandboxed pages.
        [_] ->
            false
    end;
is_allowed(Origin, Origins, _Request) ->
    lists:member(weir_http_value:lower(Origin), [weir_http_value:lower(Known) || Known <- Origins]).

%% Removes the default port of the scheme. (`uri_string' fails for invalid UTF-8.)
without_port(<<"https">>, Authority) -> without(<<":443">>, Authority);
without_port(_, Authority) -> without(<<":80">>, Authority).

without(Port, Authority) ->
    Size = byte_size(Authority) - byte_size(Port),
    case Authority of
        <<Host:Size/binary, Port/binary>> -> Host;
        _ -> Authority
    end.

accepted(Accept, Request, Options, #settings{deflate = Offer}) ->
    {Deflate, Extension} = deflate(weir_http_request:field(<<"sec-websocket-extensions">>, Request), Offer),
    Fields =
        [{<<"upgrade">>, <<"websocket">>}, {<<"sec-websocket-accept">>, Accept}] ++ Extension ++
            protocol(Options, Request) ++ weir_http_request:added(Request) ++ maps:get(fields, Options, []),
    case weir_http_nif:response(101, Fields, ?NO_LENGTH bor ?SAY_UPGRADE, 0, <<>>) of
        {keep, Head} -> {ok, Head, Deflate};
        {close, _} -> error({forbidden_field, <<"connection">>, <<"close">>});
        {forbidden, Name, Value} -> error({forbidden_field, Name, Value})
    end.

deflate(_Field, false) ->
    {none, []};
deflate(Field, Offer) ->
    case weir_http_websocket_deflate:negotiate(Field, Offer) of
        none -> {none, []};
        {Deflate, Response} -> {Deflate, [{<<"sec-websocket-extensions">>, Response}]}
    end.

%% Clients fail the connection if they get a protocol that they have not offered.
protocol(#{protocol := Protocol}, Request) ->
    lists:member(Protocol, protocols(Request)) orelse error({not_offered, Protocol}),
    [{<<"sec-websocket-protocol">>, Protocol}];
protocol(#{}, _Request) ->
    [].

%% @doc See {@link weir_http_websocket:protocols/1}.
-spec protocols(weir_http_request:request()) -> [binary()].
protocols(Request) ->
    List = weir_http_request:field(<<"sec-websocket-protocol">>, Request, <<>>),
    [Name || Part <- binary:split(List, <<",">>, [global]), Name <- [weir_http_value:trim(Part)], Name =/= <<>>].
