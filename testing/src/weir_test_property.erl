%% @doc Properties of PropEr that say why they fail.
%%
%% PropEr 1.2 cannot report an exception: it asks for its stack with `erlang:get_stacktrace/0', which OTP has not had since 24.
%% So the body of a property runs here, and what went wrong with it is told beside the counterexample:
%%
%% ```
%% ?FORALL(Case, generator(), weir_test_property:holds(fun() -> sent(Case) =:= received(Case) orelse {wrong, Case} end))
%% '''
-module(weir_test_property).

-export([holds/1, holds/2]).
-export([check/2]).
-export([shrink/2]).

%% How much more often a case is tried while one that has failed is made smaller.
-define(INSISTENCE, 50).

%% @doc Whether the function returns `true'. It runs in a process of its own, which has an empty mailbox at first and takes
%% what is linked to it with it at the end. Anything else that the function returns, an exception of it, or the end of its
%% process by a link is what check/2 tells.
-spec holds(fun(() -> true | term())) -> boolean().
holds(Fun) ->
    {Pid, Monitor} = weir_test_process:start(fun() -> exit({?MODULE, outcome(Fun)}) end),
    receive
        {'DOWN', Monitor, process, Pid, {?MODULE, {returned, true}}} -> true;
        {'DOWN', Monitor, process, Pid, {?MODULE, Outcome}} -> fails(Outcome);
        {'DOWN', Monitor, process, Pid, Reason} -> fails({ended, Reason})
    end.

%% @doc Whether the function returns `true' so many times. What depends on the schedulers does not fail each time: once a case has
%% failed, those that are tried in its place are tried 50 times as often.
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

%% @doc Tries a property with so many cases. One that fails is not made smaller: what fails once in thousands of cases does
%% not fail again while it is, which takes long and tells nothing.
-spec check(term(), pos_integer()) -> ok.
check(Property, Cases) -> check(Property, Cases, [noshrink]).

%% @doc The same, and makes one that fails as small as it fails still: for those that take little time. What is told is the
%% smallest case, and what went wrong with it.
-spec shrink(term(), pos_integer()) -> ok.
shrink(Property, Cases) -> check(Property, Cases, []).

check(Property, Cases, Options) ->
    _ = erase(?MODULE),
    case proper:quickcheck(Property, [{numtests, Cases}, long_result, quiet | Options]) of
        true -> ok;
        Result -> error({property_fails, #{counterexample => Result, because => get(?MODULE)}})
    end.
