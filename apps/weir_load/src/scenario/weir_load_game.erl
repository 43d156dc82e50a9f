%% @doc Scenario `game': players that answer every tick of the server with 16 bytes.
-module(weir_load_game).
-behaviour(weir_load_scenario).

-export([describe/0]).
-export([init/1]).
-export([connect/2]).
-export([request/2]).
-export([response/2]).
-export([done/1]).

-define(ANSWER, <<"!!!!!!!!!!!!!!!!">>).

%% Bytes of a tick, and how many bytes of the next have come.
-type ticks() :: {Size :: pos_integer(), Received :: non_neg_integer()}.

-spec describe() -> weir_load_scenario:description().
describe() ->
    #{
        summary => "players that answer each tick of the server with 16 bytes",
        help => "The ticks of the server are counted as pushed.\n",
        arrivals => none,
        options => [
            #{name => size, type => {integer, 1, 1_000_000}, value => "BYTES", default => 512,
                help => "bytes of a tick (512)"}
        ],
        defaults => [{connections, "1000"}, {'connect-rate', "2000"}]
    }.

-spec init(#{size := pos_integer(), _ => _}) -> {ok, ticks()}.
init(#{size := Size}) -> {ok, {Size, 0}}.

-spec connect(pos_integer(), ticks()) -> {ok, ticks()}.
connect(_Number, Ticks) -> {ok, Ticks}.

-spec request(pos_integer(), ticks()) -> {ok, iodata(), ticks()}.
request(_Sequence, Ticks) -> {ok, <<>>, Ticks}.

-spec response(binary(), ticks()) -> {ok, [weir_load_scenario:event()], ticks()}.
response(Data, {Size, Received}) ->
    Total = Received + byte_size(Data),
    Whole = Total div Size,
    Answers = [{send, binary:copy(?ANSWER, Whole)} || Whole > 0],
    {ok, lists:duplicate(Whole, pushed) ++ Answers, {Size, Total rem Size}}.

-spec done(ticks()) -> ok.
done(_Ticks) -> ok.
