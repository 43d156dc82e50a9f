%% @doc Parses promises such as `p99<10ms' or `errors=0', and checks whether a run has kept them.
%%
%% A promise is about a percentile (`p50', `p75', `p90', `p95', `p99', `p999', `p9999', `p99999'), `min', `max', `mean'
%% or `stdev' of the response time; the same of another measure, as in `service.p99' or `connect.max'; `errors', or
%% those of one kind, as in `errors.timeout'; `achieved_rate', `pushed_rate', `answered', `pushed' or `connected'.
-module(weir_load_promise).

-export([parse/1]).
-export([check/2]).
-export([text/1]).

-export_type([promise/0, verdict/0]).

-record(promise, {
    text :: string(),
    subject :: [atom()] | {errors, binary()},
    relation :: relation(),
    bound :: number()
}).
-opaque promise() :: #promise{}.

-type relation() :: '<' | '=<' | '>' | '>=' | '=:='.

%% `value' is `null' if nothing was measured; the promise is not kept then.
-type verdict() :: #{promise := binary(), value := number() | null, kept := boolean()}.

%% @doc Parses a promise. The error says what is needed.
-spec parse(string()) -> {ok, promise()} | {error, iodata()}.
parse(Text) ->
    case re:run(Text, "^([a-z0-9_.]+)(<=|>=|<|>|=)([0-9][0-9.]*[a-z]*)$", [{capture, all_but_first, list}]) of
        {match, [Name, Relation, Bound]} ->
            case subject(Name) of
                {ok, Subject} -> bound(Text, Subject, relation(Relation), Bound);
                error -> {error, ["unknown measure ", Name, "; valid: p99, service.p99, errors, achieved_rate, ..."]}
            end;
        nomatch ->
            {error, "a promise is needed, such as p99<10ms, errors=0 or achieved_rate>=2000"}
    end.

relation("<") -> '<';
relation("<=") -> '=<';
relation(">") -> '>';
relation(">=") -> '>=';
relation("=") -> '=:='.

subject("errors") -> {ok, [error_count]};
subject("errors." ++ Kind) -> {ok, {errors, list_to_binary(Kind)}};
subject(Name) ->
    Counts = [achieved_rate, pushed_rate, answered, pushed, connected],
    Figures = [min, max, mean, stdev | [Percentile || {Percentile, _} <- weir_load_second:percentiles()]],
    Measures = [{"response", response_us}, {"service", service_us}, {"connect", connect_us},
                {"first_byte", first_byte_us}, {"lag", lag_us}, {"push", push_us}],
    {Measure, Figure} =
        case string:split(Name, ".") of
            [One] -> {"response", One};
            [Before, After] -> {Before, After}
        end,
    case {named(Name, Counts), lists:keyfind(Measure, 1, Measures), named(Figure, Figures)} of
        {[Count], _, _} -> {ok, [Count]};
        {[], {_, Key}, [Found]} -> {ok, [Key, Found]};
        _ -> error
    end.

named(Name, Atoms) -> [Atom || Atom <- Atoms, atom_to_list(Atom) =:= Name].

bound(Text, [_, _] = Subject, Relation, Bound) ->
    case weir_load_units:time(Bound) of
        {ok, Nanoseconds} -> {ok, promise(Text, Subject, Relation, Nanoseconds / 1000)};
        {error, Needed} -> {error, Needed}
    end;
bound(Text, Subject, Relation, Bound) ->
    case weir_load_units:number(Bound) of
        {ok, Number} -> {ok, promise(Text, Subject, Relation, Number)};
        error -> {error, ["a number is needed; ", Bound, " is not one"]}
    end.

promise(Text, Subject, Relation, Bound) ->
    #promise{text = Text, subject = Subject, relation = Relation, bound = Bound}.

%% @doc Returns the promise as it was written.
-spec text(promise()) -> string().
text(#promise{text = Text}) -> Text.

%% @doc Checks a promise against the total of a run.
-spec check(promise(), weir_load_document:total()) -> verdict().
check(#promise{text = Text, subject = Subject, relation = Relation, bound = Bound}, Total) ->
    Value = value(Subject, Total),
    %% As floats, because 0 =:= 0.0 is false. Any number is less than the atom `null', so that must be excluded.
    Kept = is_number(Value) andalso erlang:Relation(float(Value), float(Bound)),
    #{promise => list_to_binary(Text), value => Value, kept => Kept}.

value({errors, Kind}, #{errors := Errors}) ->
    lists:sum([Count || {Name, Count} <- maps:to_list(Errors), atom_to_binary(Name) =:= Kind]);
value([Key | Keys], Total) ->
    case Total of
        #{Key := Value} when Keys =:= [] -> Value;
        #{Key := Inner} -> value(Keys, Inner);
        #{} -> null
    end.
