%% `?STEP' marks a place between two atomic steps where another process may interfere. In test builds
%% `weir_test_chaos' can delay processes there; other builds contain nothing.
-ifdef(TEST).
-define(STEP, _ = (persistent_term:get(weir_step, fun() -> ok end))()).
-else.
-define(STEP, _ = ok).
-endif.
