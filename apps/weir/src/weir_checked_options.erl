%% @doc Checks options in a map one by one. Everywhere in Weir a wrong option is the same kind of error.
-module(weir_checked_options).

-export([check/3]).
-export([unknown/1]).
-export([time/2]).
-export([number/3]).

-export_type([bad_option/0]).

-type bad_option() :: {bad_option, Name :: term(), Value :: term(), Allowed :: string()}.
%% The first wrong option, its value, and the allowed values in words.

%% The limit of the VM's timers, and of 32-bit counts in the native part.
-define(MOST, 16#ffffffff).

%% @doc Checks that all options are known and valid. `Check' gets the name and the value of a known option, and
%% returns `true' or the allowed values.
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

%% @doc Returns the text for an unknown option.
-spec unknown(Known :: [atom()]) -> Allowed :: string().
unknown(Known) ->
    "unknown option; valid: " ++ lists:append(lists:join(", ", [atom_to_list(Name) || Name <- Known])).

%% @doc Returns `true' for milliseconds from `Least' on, or `infinity'; otherwise the allowed values.
-spec time(Least :: non_neg_integer(), Value :: term()) -> true | (Allowed :: string()).
time(_Least, infinity) -> true;
time(Least, Value) -> is_within(Least, Value) orelse "milliseconds " ++ range(Least) ++ ", or infinity".

%% @doc Returns `true' for a number from `Least' on; otherwise the allowed values, with the name of the unit.
-spec number(What :: string(), Least :: non_neg_integer(), Value :: term()) -> true | (Allowed :: string()).
number(What, Least, Value) -> is_within(Least, Value) orelse "a number of " ++ What ++ " " ++ range(Least).

is_within(Least, Value) -> is_integer(Value) andalso Value >= Least andalso Value =< ?MOST.

range(Least) -> "from " ++ integer_to_list(Least) ++ " to " ++ integer_to_list(?MOST).
