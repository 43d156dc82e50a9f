%% @doc Searches for the highest value of a setting that a server holds: requests a second, or connections.
-module(weir_bench_search).

-export([check/1]).
-export([most/2]).
-export([tries/0]).

-export_type([search/0]).

%% `over' is the setting. `start' is tried first, and no value outside `least' and `most'. A value is held if `metric'
%% is at most `limit', nothing failed and no client missed a message.
-type search() :: #{
    over := rate | connections,
    start := pos_integer(),
    least := pos_integer(),
    most := pos_integer(),
    metric := weir_bench_sample:metric(),
    limit := number()
}.

-type result() :: {ok, weir_bench_sample:sample()} | {skipped | error, binary()}.

%% Relative distance between the highest value that is held and the lowest that is not.
-define(PRECISION, 0.1).

%% @doc Returns `ok', or a text that says what a search needs.
-spec check(term()) -> ok | string().
check(#{over := Over, start := Start, least := Least, most := Most, metric := Metric, limit := Limit} = Search) when
    map_size(Search) =:= 6,
    is_integer(Start),
    is_integer(Least),
    is_integer(Most),
    is_number(Limit),
    0 < Least,
    Least =< Start,
    Start =< Most
->
    case lists:member(Over, [rate, connections]) andalso lists:member(Metric, weir_bench_sample:metrics()) of
        true -> ok;
        false -> "over rate or connections, and a metric"
    end;
check(_) ->
    "over, start, least, most, metric and limit".

%% @doc Calls `Measure' with one value after another. Returns the sample of the highest value that was held, with
%% `held_per_s' or `connections'.
-spec most(search(), fun((pos_integer()) -> result())) -> result().
most(#{start := Start, least := Least, most := Most} = Search, Measure) ->
    Owner = self(),
    Reference = make_ref(),
    Try = fun(Value) ->
        Result = Measure(round(Value)),
        Owner ! {Reference, Value, Result},
        outcome(Result, Search)
    end,
    Bounds = #{least => Least, most => Most, precision => ?PRECISION, once => true},
    {_, #{kept := Kept, broken := Broken}} = weir_load_search:search(Try, Start, Bounds),
    held(Kept, Broken, tried(Reference), Search).

%% The measurements, the last first.
tried(Reference) -> tried(Reference, []).

tried(Reference, Results) ->
    receive
        {Reference, Value, Result} -> tried(Reference, [{Value, Result} | Results])
    after 0 ->
        Results
    end.

%% The server cannot be measured at this value.
outcome({skipped, _}, _Search) -> stopped;
outcome({error, _}, _Search) -> broken;
outcome({ok, #{metrics := Metrics, errors := Errors}}, #{metric := Metric, limit := Limit}) ->
    case Metrics of
        #{Metric := Value} when Value =< Limit, Errors =:= 0 ->
            case Metrics of
                #{missed := Missed} when Missed > 0 -> broken;
                #{} -> kept
            end;
        #{} ->
            broken
    end.

held(none, _Broken, Results, #{least := Least} = Search) ->
    case [Sample || {_, {ok, Sample}} <- Results] of
        [] ->
            [{_, Last} | _] = Results,
            Last;
        _ ->
            Note = io_lib:format("not even ~ts are held", [weir_bench_table:number(Least)]),
            {ok, weir_bench_sample:note(iolist_to_binary(Note), #{metrics => figure(0, Search), errors => 0})}
    end;
held(Kept, Broken, Results, Search) ->
    %% A value may be measured again after it was not held.
    [{ok, #{metrics := Metrics} = Sample} | _] = [
        Result
     || {Value, Result} <- Results, Value =:= Kept, outcome(Result, Search) =:= kept
    ],
    Whole = Sample#{metrics := maps:merge(Metrics, figure(round(Kept), Search))},
    case Broken of
        none -> {ok, weir_bench_sample:note(<<"held to the end, it may hold more">>, Whole)};
        _ -> {ok, Whole}
    end.

figure(Value, #{over := rate}) -> #{held_per_s => Value};
figure(Value, #{over := connections}) -> #{connections => Value}.

%% @doc Returns the approximate number of measurements of a search.
-spec tries() -> pos_integer().
tries() -> 11.
