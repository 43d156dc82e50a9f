%% @doc permessage-deflate (RFC 7692): negotiation, and compression in both directions.
%%
%% By default each message is compressed independently in both directions, so a connection keeps no state. With
%% `context' it keeps the end of the previous messages, up to a window per direction. These bytes are all its state.
-module(weir_http_websocket_deflate).

-export([offer/1]).
-export([negotiate/2]).
-export([shared/2]).
-export([inflate/4]).
-export([deflate/2]).
-export([forget/1]).

-export_type([options/0, offer/0, deflate/0]).

-type options() :: #{level => 1..9, min_size => non_neg_integer(), context => boolean(), window_bits => 9..15}.
%% <dl>
%% <dt>`level' (1)</dt><dd>From 1 (fast) to 9 (small).</dd>
%% <dt>`min_size' (128)</dt><dd>Shorter messages are not compressed.</dd>
%% <dt>`context' (`false')</dt><dd>Whether a message may refer to earlier ones: smaller for many similar messages, for
%% up to two windows of memory. The window for sending is dropped when nothing has arrived for `ping_interval'.</dd>
%% <dt>`window_bits' (12)</dt><dd>The window has 2 to the power of that many bytes: in both directions with context,
%% only for sending without. A client that cannot limit its window to this gets no context.</dd>
%% </dl>

%% Our options.
-record(offer, {level :: 1..9, min_size :: non_neg_integer(), context :: boolean(), window_bits :: 9..15}).

%% The result of the negotiation. A window is `none' (no context), or the bytes kept.
-record(deflate, {
    offer :: #offer{},
    window_bits :: 9..15,
    received_bits :: 8..15,
    received :: none | binary(),
    sent :: none | binary()
}).

-opaque offer() :: #offer{}.
-opaque deflate() :: #deflate{}.

%% Bytes to inflate or deflate on an ordinary scheduler: up to about half a millisecond.
-define(INFLATED, 65536).
-define(DEFLATED, 16384).

-define(DEFAULTS, #{level => 1, min_size => 128, context => false, window_bits => 12}).

%% @private
%% @doc Checks options.
-spec offer(boolean() | options()) -> {ok, false | offer()} | {error, {bad_option, term(), term(), string()}}.
offer(false) ->
    {ok, false};
offer(true) ->
    offer(#{});
offer(Options) when is_map(Options) ->
    case weir_checked_options:check(Options, maps:keys(?DEFAULTS), fun allowed/2) of
        ok ->
            #{level := Level, min_size := Least, context := Context, window_bits := Bits} = maps:merge(
                ?DEFAULTS, Options
            ),
            {ok, #offer{level = Level, min_size = Least, context = Context, window_bits = Bits}};
        {error, _} = Error ->
            Error
    end;
offer(Other) ->
    {error, {bad_option, deflate, Other, "true, false or a map"}}.

allowed(level, Level) -> (is_integer(Level) andalso Level >= 1 andalso Level =< 9) orelse "1 to 9";
allowed(window_bits, Bits) -> (is_integer(Bits) andalso Bits >= 9 andalso Bits =< 15) orelse "9 to 15";
allowed(min_size, Bytes) -> (is_integer(Bytes) andalso Bytes >= 0) orelse "a number of bytes from 0 on";
allowed(context, Context) -> is_boolean(Context) orelse "true or false".

%%% Negotiation.

%% @private
%% @doc Negotiates with a client. Returns the result and the response field; `none' if no offer is acceptable.
-spec negotiate(Field :: binary() | undefined, offer()) -> {deflate(), Response :: iodata()} | none.
negotiate(undefined, _Offer) ->
    none;
negotiate(Field, Offer) ->
    first([parse(Extension) || Extension <- binary:split(Field, <<",">>, [global])], Offer).

%% @private
%% @doc The same without state of a single client: frames made with the result are for all clients that negotiated the
%% same.
-spec shared(Field :: binary() | undefined, offer()) -> deflate() | none.
shared(Field, #offer{context = false} = Offer) ->
    case negotiate(Field, Offer) of
        {Deflate, _} -> Deflate#deflate{received_bits = 15};
        none -> none
    end.

first([], _Offer) -> none;
first([error | Others], Offer) -> first(Others, Offer);
first([{ok, Parameters} | _], Offer) -> agree(Parameters, Offer).

parse(Extension) ->
    case [weir_http_value:trim(Part) || Part <- binary:split(Extension, <<";">>, [global])] of
        [<<"permessage-deflate">> | Parts] -> parameters(Parts, #{});
        _ -> error
    end.

%% Each parameter once, all of them known: otherwise the offer must be declined (RFC 7692, 7.1).
parameters([], Parameters) ->
    {ok, Parameters};
parameters([Part | Parts], Parameters) ->
    [Name | Value] = [weir_http_value:trim(Side) || Side <- binary:split(Part, <<"=">>)],
    case {parameter(Name, Value), Parameters} of
        {error, _} -> error;
        {_, #{Name := _}} -> error;
        {Known, _} -> parameters(Parts, Parameters#{Name => Known})
    end.

parameter(<<"server_no_context_takeover">>, []) -> true;
parameter(<<"client_no_context_takeover">>, []) -> true;
parameter(<<"client_max_window_bits">>, []) -> 15;
parameter(<<"client_max_window_bits">>, [Value]) -> bits(Value, 8);
%% zlib cannot deflate with a window of 256 bytes.
parameter(<<"server_max_window_bits">>, [Value]) -> bits(Value, 9);
parameter(_, _) -> error.

%% A number without leading zeros, possibly quoted (RFC 7692, 7.1.2).
bits(<<$", Digit, $">>, Least) -> bits(<<Digit>>, Least);
bits(<<$", Ten, Digit, $">>, Least) -> bits(<<Ten, Digit>>, Least);
bits(<<Digit>>, Least) when Digit =< $9 -> bits_of(Digit - $0, Least);
bits(<<$1, Digit>>, Least) when Digit >= $0 -> bits_of(10 + Digit - $0, Least);
bits(_, _Least) -> error.

bits_of(Bits, Least) when Bits >= Least, Bits =< 15 -> Bits;
bits_of(_, _Least) -> error.

agree(Parameters, Offer = #offer{context = Context, window_bits = Wanted}) ->
    Bits = min(Wanted, maps:get(<<"server_max_window_bits">>, Parameters, 15)),
    Sends = Context andalso not is_map_key(<<"server_no_context_takeover">>, Parameters),
    %% The window of a client can only be limited if it sent client_max_window_bits.
    Receives =
        Context andalso not is_map_key(<<"client_no_context_takeover">>, Parameters) andalso
            (is_map_key(<<"client_max_window_bits">>, Parameters) orelse Wanted =:= 15),
    ReceivedBits = min(Wanted, maps:get(<<"client_max_window_bits">>, Parameters, Wanted)),
    Deflate = #deflate{
        offer = Offer,
        window_bits = Bits,
        received_bits = ReceivedBits,
        received = window(Receives),
        sent = window(Sends)
    },
    Response = [
        <<"permessage-deflate">>,
        [<<"; server_no_context_takeover">> || not Sends],
        [<<"; client_no_context_takeover">> || not Receives],
        [[<<"; server_max_window_bits=">>, integer_to_binary(Bits)] || Bits < 15],
        [
            [<<"; client_max_window_bits=">>, integer_to_binary(ReceivedBits)]
         || Receives, is_map_key(<<"client_max_window_bits">>, Parameters)
        ]
    ],
    {Deflate, Response}.

window(true) -> <<>>;
window(false) -> none.

%%% Messages.

%% @private
%% @doc Inflates a message, and updates the window.
-spec inflate(text | binary, binary(), Most :: pos_integer(), deflate()) ->
    {ok, binary(), deflate()} | {failed, Code :: 1007 | 1009, atom()}.
inflate(Kind, Message, Most, Deflate = #deflate{received = Window, received_bits = Bits}) ->
    IsText = Kind =:= text,
    case inflated(bytes(Window), Message, Most, IsText) of
        Bytes when is_binary(Bytes) -> {ok, Bytes, Deflate#deflate{received = remember(Window, Bytes, Bits)}};
        too_long -> {failed, 1009, too_big};
        {failed, _, _} = Failed -> Failed
    end.

inflated(Window, Message, Most, IsText) when byte_size(Message) > ?INFLATED ->
    weir_http_nif:inflate_large(Window, Message, Most, IsText);
inflated(Window, Message, Most, IsText) ->
    case weir_http_nif:inflate(Window, Message, min(Most, ?INFLATED), IsText) of
        too_long when Most > ?INFLATED -> weir_http_nif:inflate_large(Window, Message, Most, IsText);
        Result -> Result
    end.

%% @private
%% @doc Deflates a message, and updates the window. `plain': the message is too short.
-spec deflate(binary(), deflate()) -> plain | {binary(), deflate()}.
deflate(Bytes, #deflate{offer = #offer{min_size = Least}}) when byte_size(Bytes) < Least ->
    plain;
deflate(Bytes, Deflate = #deflate{offer = #offer{level = Level}, window_bits = Bits, sent = Window}) ->
    Compressed =
        case byte_size(Bytes) =< ?DEFLATED of
            true -> weir_http_nif:deflate(bytes(Window), Bytes, Level, Bits);
            false -> weir_http_nif:deflate_large(bytes(Window), Bytes, Level, Bits)
        end,
    {Compressed, Deflate#deflate{sent = remember(Window, Bytes, Bits)}}.

bytes(none) -> <<>>;
bytes(Window) -> Window.

remember(none, _Bytes, _Bits) ->
    none;
remember(_Window, Bytes, Bits) when byte_size(Bytes) >= 1 bsl Bits ->
    binary:copy(binary:part(Bytes, byte_size(Bytes), -(1 bsl Bits)));
remember(Window, Bytes, Bits) ->
    Kept = min(byte_size(Window), (1 bsl Bits) - byte_size(Bytes)),
    iolist_to_binary([binary:part(Window, byte_size(Window), -Kept), Bytes]).

%% @private
%% @doc Drops the window for sending: the next message does not refer to earlier ones. The window for receiving is
%% still needed.
-spec forget(deflate()) -> deflate().
forget(Deflate = #deflate{sent = none}) -> Deflate;
forget(Deflate = #deflate{sent = <<>>}) -> Deflate;
forget(Deflate) -> Deflate#deflate{sent = <<>>}.
