%% Macros that wait for an expression and quote it when it fails.
-ifndef(WEIR_TEST_HRL).
-define(WEIR_TEST_HRL, true).

%% Waits until the expression matches the pattern. A failure reports both and the last value.
-define(waitMatch(Pattern, Expression),
    weir_test_wait:wait_match(
        fun() -> Expression end,
        fun
            (Pattern) -> true;
            (_) -> false
        end,
        #{module => ?MODULE, line => ?LINE, expression => (??Expression), pattern => (??Pattern)}
    )
).

%% Waits until the expression has this value. A failure reports the expression, the expected and the last value.
-define(waitEqual(Expected, Expression),
    ((fun() ->
        __Expected = (Expected),
        weir_test_wait:wait_match(
            fun() -> Expression end,
            fun(__Value) -> __Value =:= __Expected end,
            #{module => ?MODULE, line => ?LINE, expression => (??Expression), expected => __Expected}
        )
    end)())
).

-endif.
