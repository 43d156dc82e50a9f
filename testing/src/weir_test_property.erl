%% @doc PropEr properties that report why they fail.
%%
%% PropEr 1.2 cannot report an exception: it calls `erlang:get_stacktrace/0', which OTP removed in 24. Therefore the
%% body of a property runs in `holds', and its failure is reported beside the counterexample:
%%
%% ```
%% ?FORALL(Case, generator(), weir_test_property:holds(fun() -> sent(Case) =:= received(Case) orelse {wrong, Case} end))
%% '''
-module(weir_test_property).

-export([holds/1, holds/2]).
-export([check/2]).
-export([shrink/2]).

%% How many more times a case is tried while shrinking.
-define(INSISTENCE, 50).

%% @doc Whether the function returns `true'. It runs in a process of its own with an empty mailbox; processes linked
%% to it end with it. check/2 reports any other return value, an exception, or an exit through a link.
-spec holds(fun(() -> true | term())) -> boolean().
holds(Fun) ->
    {Pid, Monitor} = weir_test_process:start(fun() -> exit({?MODULE, outcome(Fun)}) end),
    receive
        {'DOWN', Monitor, process, Pid, {?MODULE, {returned, true}}} -> true;
        {'DOWN', Monitor, process, Pid, {?MODULE, Outcome}} -> fails(Outcome);
        {'DOWN', Monitor, process, Pid, Reason} -> fails({ended, Reason})
    end.

%% @doc Whether the function returns `true' in each of this many tries. A case that depends on the schedulers does not
%% fail each time: after the first failure, the smaller cases are tried 50 times as often.
-spec holds(fun(() -> true | term()), pos_integer()) -> boolean().
holds(Fun, Times) ->
    Tries =
        case get(?MODULE) of
            undefined -> Times;
            _Failed -> Times * ?INSISTENCE
        end,
    lists:all(fun(_) -> holds(Fun) end, lists:seq(1, Tries)).

outcome(Fun) ->
    try
        {returned, Fun()}
    catch
        Class:Reason:Stack -> {Class, Reason, Stack}
    end.

fails(Outcome) ->
    _ = put(?MODULE, Outcome),
    false.

%% @doc Tries a property with this many cases, without shrinking. Shrinking a failure that occurs once in thousands of
%% cases takes long and finds nothing.
-spec check(term(), pos_integer()) -> ok.
check(Property, Cases) -> check(Property, Cases, [noshrink]).

%% @doc Tries a property with this many cases and shrinks a failure, for properties that run fast. Reports the
%% smallest failing case and its reason.
-spec shrink(term(), pos_integer()) -> ok.
shrink(Property, Cases) -> check(Property, Cases, []).

check(Property, Cases, Options) ->
    _ = erase(?MODULE),
    case proper:quickcheck(Property, [{numtests, Cases}, long_result, quiet | Options]) of
        true -> ok;
        Result -> error({property_fails, #{counterexample => Result, because => get(?MODULE)}})
    end.
