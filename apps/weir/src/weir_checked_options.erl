%% @doc Options in a map, checked one by one: the form of the error is the same wherever Weir takes options.
-module(weir_checked_options).

-export([check/3]).
-export([unknown/1]).
-export([time/2]).
-export([number/3]).

-export_type([bad_option/0]).

-type bad_option() :: {bad_option, Name :: term(), Value :: term(), Allowed :: string()}.
%% The first option that is wrong, its value, and in words what is allowed.

%% As the VM's own timers take. Counts of the native part have as many bits.
-define(MOST, 16#ffffffff).

%% @doc Whether all options are known and right. `Check' gets the name and the value of a known one, and says `true' or what
%% is allowed.
-spec check(term(), Known :: [atom()], Check) -> ok | {error, bad_option()} when
    Check :: fun((Name :: atom(), Value :: term()) -> true | (Allowed :: string())).
check(Options, Known, Check) when is_map(Options) ->
    first_wrong(lists:sort(maps:to_list(Options)), Known, Check);
check(Options, _Known, _Check) ->
    {error, {bad_option, options, Options, "a map"}}.

first_wrong([{Name, Value} | Others], Known, Check) ->
    case lists:member(Name, Known) of
        true ->
            case Check(Name, Value) of
                true -> first_wrong(Others, Known, Check);
                Allowed -> {error, {bad_option, Name, Value, Allowed}}
            end;
        false ->
            {error, {bad_option, Name, Value, unknown(Known)}}
    end;
first_wrong([], _Known, _Check) ->
    ok.

%% @doc What is said of an option that is none of these.
-spec unknown(Known :: [atom()]) -> Allowed :: string().
unknown(Known) ->
    "unknown option; valid: " ++ lists:append(lists:join(", ", [atom_to_list(Name) || Name <- Known])).

%% @doc Whether a value is a time in milliseconds from `Least' on, or `infinity'; otherwise what is allowed.
-spec time(Least :: non_neg_integer(), Value :: term()) -> true | (Allowed :: string()).
time(_Least, infinity) -> true;
time(Least, Value) -> is_within(Least, Value) orelse "milliseconds " ++ range(Least) ++ ", or infinity".

%% @doc Whether a value is a number from `Least' on; otherwise what is allowed, with the name of what is counted.
-spec number(What :: string(), Least :: non_neg_integer(), Value :: term()) -> true | (Allowed :: string()).
number(What, Least, Value) -> is_within(Least, Value) orelse "a number of " ++ What ++ " " ++ range(Least).

is_within(Least, Value) -> is_integer(Value) andalso Value >= Least andalso Value =< ?MOST.

range(Least) -> "from " ++ integer_to_list(Least) ++ " to " ++ integer_to_list(?MOST).
