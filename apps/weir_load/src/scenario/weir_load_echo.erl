%% @doc Scenario `echo': sends messages and compares every byte that comes back.
-module(weir_load_echo).
-behaviour(weir_load_scenario).

-export([describe/0]).
-export([init/1]).
-export([connect/2]).
-export([request/2]).
-export([response/2]).
-export([done/1]).

%% The message of a connection, and the part of the next reply that has come.
-record(echo, {message :: binary(), part = <<>> :: binary()}).

-spec describe() -> weir_load_scenario:description().
describe() ->
    #{
        summary => "sends messages and compares every byte that comes back",
        options => [
            #{name => size, type => {integer, 1, 1_000_000}, value => "BYTES", default => 64,
                help => "bytes of a message (64)"}
        ]
    }.

-spec init(#{size := pos_integer(), _ => _}) -> {ok, binary()}.
init(#{size := Size}) -> {ok, binary:copy(<<"e">>, Size)}.

%% Each connection has its own message, if the size has room for its number, so that a reply on the wrong connection is
%% noticed. The message stays the same: a request allocates nothing, and the state changes only if a reply comes in
%% pieces.
-spec connect(pos_integer(), binary()) -> {ok, #echo{}}.
connect(Number, <<_:32, Filler/binary>>) -> {ok, #echo{message = <<Number:32, Filler/binary>>}};
connect(Number, Short) -> {ok, #echo{message = binary:part(<<Number:32/little>>, 0, byte_size(Short))}}.

-spec request(pos_integer(), #echo{}) -> {ok, iodata(), #echo{}}.
request(_Sequence, #echo{message = Message} = Echo) -> {ok, Message, Echo}.

-spec response(binary(), #echo{}) -> {ok, [weir_load_scenario:event()], #echo{}} | {error, wrong_reply}.
response(Message, #echo{message = Message, part = <<>>} = Echo) -> {ok, [answered], Echo};
response(Data, #echo{part = <<>>} = Echo) -> compare(Data, Echo, []);
response(Data, #echo{part = Part} = Echo) -> compare(<<Part/binary, Data/binary>>, Echo#echo{part = <<>>}, []).

compare(Bytes, #echo{message = Message} = Echo, Events) when byte_size(Bytes) >= byte_size(Message) ->
    Size = byte_size(Message),
    case Bytes of
        <<Message:Size/binary, Rest/binary>> -> compare(Rest, Echo, [answered | Events]);
        _ -> {error, wrong_reply}
    end;
compare(Bytes, Echo, Events) ->
    {ok, Events, Echo#echo{part = Bytes}}.

-spec done(#echo{}) -> ok.
done(_Echo) -> ok.
