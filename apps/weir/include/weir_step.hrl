%% `?STEP' stands between two steps of something's life, each whole by itself, where another process may come between. In a build
%% for tests a process may be held up there, if `weir_test_chaos' has said so; in any other build there is nothing.
-ifdef(TEST).
-define(STEP, _ = (persistent_term:get(weir_step, fun() -> ok end))()).
-else.
-define(STEP, _ = ok).
-endif.
