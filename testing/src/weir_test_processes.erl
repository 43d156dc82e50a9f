%% @doc Finds programs that a part of the tests has left behind, by the part's mark in their environment.
-module(weir_test_processes).

-export([end_marked/1]).
-export([kill_marked/1]).

%% Milliseconds that a program may take to end.
-define(GRACE, 10_000).

%% @doc Waits until no process of this machine has `WEIR_TEST_RUN=MARK' in its environment. Kills those that remain
%% and returns their command lines.
-spec end_marked(string()) -> [string()].
end_marked(Mark) ->
    case weir_test_wait:becomes_true(fun() -> marked(Mark) =:= [] end, ?GRACE * weir_test_wait:stretch()) of
        true -> [];
        false -> kill_marked(Mark)
    end.

%% @doc Kills all processes with this mark at once, except the caller, and returns their command lines.
-spec kill_marked(string()) -> [string()].
kill_marked(Mark) ->
    Pids = marked(Mark) -- [os:getpid()],
    Commands = [command(Pid) || Pid <- Pids],
    _ = os:cmd(lists:flatten(["kill -KILL" | [[" ", Pid] || Pid <- Pids]])),
    Commands.

marked(Mark) ->
    Variable = iolist_to_binary(["WEIR_TEST_RUN=", Mark, 0]),
    [
        Pid
     || "/proc/" ++ Pid <- filelib:wildcard("/proc/[0-9]*"), has(Variable, file:read_file(["/proc/", Pid, "/environ"]))
    ].

has(Variable, {ok, Environment}) -> binary:match(Environment, Variable) =/= nomatch;
has(_Variable, {error, _}) -> false.

command(Pid) ->
    case file:read_file(["/proc/", Pid, "/cmdline"]) of
        {ok, Line} -> lists:flatten(string:replace(binary_to_list(Line), [0], " ", all));
        {error, _} -> Pid
    end.
