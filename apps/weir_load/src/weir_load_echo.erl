%% @doc Scenario `echo': messages that come back, every byte compared.
-module(weir_load_echo).
-behaviour(weir_load_scenario).

-export([describe/0]).
-export([init/1]).
-export([connect/2]).
-export([request/2]).
-export([response/2]).
-export([done/1]).

-record(echo, {
    number :: pos_integer(),
    filler :: binary(),
    received = 0 :: non_neg_integer(),
    part = <<>> :: binary()
}).

-spec describe() -> weir_load_scenario:description().
describe() ->
    #{
        summary => "messages that come back, every byte compared",
        options => [
            #{name => size, type => {integer, 1, 1_000_000}, value => "BYTES", default => 64,
                help => "bytes of a message (64)"}
        ]
    }.

-spec init(#{size := pos_integer(), _ => _}) -> {ok, binary()}.
init(#{size := Size}) -> {ok, binary:copy(<<"e">>, Size)}.

-spec connect(pos_integer(), binary()) -> {ok, #echo{}}.
connect(Number, Filler) -> {ok, #echo{number = Number, filler = Filler}}.

-spec request(pos_integer(), #echo{}) -> {ok, iodata(), #echo{}}.
request(Sequence, Echo) -> {ok, message(Sequence, Echo), Echo}.

%% No two messages are the same, as far as there is room to tell: one that goes astray is noticed.
message(Sequence, #echo{number = Number, filler = Filler}) ->
    case Filler of
        <<_:64, Rest/binary>> -> <<Number:32, Sequence:32, Rest/binary>>;
        _ -> binary:part(<<Sequence:32, Number:32>>, 0, byte_size(Filler))
    end.

-spec response(binary(), #echo{}) -> {ok, [weir_load_scenario:event()], #echo{}} | {error, wrong_reply}.
response(Data, #echo{part = <<>>} = Echo) -> compare(Data, Echo, []);
response(Data, #echo{part = Part} = Echo) -> compare(<<Part/binary, Data/binary>>, Echo#echo{part = <<>>}, []).

compare(Bytes, #echo{filler = Filler, received = Received} = Echo, Events) when byte_size(Bytes) >= byte_size(Filler) ->
    Size = byte_size(Filler),
    Expected = message(Received + 1, Echo),
    case Bytes of
        <<Expected:Size/binary, Rest/binary>> -> compare(Rest, Echo#echo{received = Received + 1}, [answered | Events]);
        _ -> {error, wrong_reply}
    end;
compare(Bytes, Echo, Events) ->
    {ok, Events, Echo#echo{part = Bytes}}.

-spec done(#echo{}) -> ok.
done(_Echo) -> ok.
