%% @doc Programs that a part of the tests has left behind: those whose environment has the mark of the part.
-module(weir_test_processes).

-export([end_marked/1]).

%% A program that has been told to end may take so long, in milliseconds.
-define(GRACE, 10_000).

%% @doc Waits until no process of this machine has `WEIR_TEST_RUN=MARK' in its environment. Kills those that stay, and returns
%% their command lines.
-spec end_marked(string()) -> [string()].
end_marked(Mark) ->
    case weir_test_wait:becomes_true(fun() -> marked(Mark) =:= [] end, ?GRACE * weir_test_wait:stretch()) of
        true -> [];
        false -> [kill(Pid) || Pid <- marked(Mark)]
    end.

marked(Mark) ->
    Variable = iolist_to_binary(["WEIR_TEST_RUN=", Mark, 0]),
    [Pid || "/proc/" ++ Pid <- filelib:wildcard("/proc/[0-9]*"), has(Variable, file:read_file(["/proc/", Pid, "/environ"]))].

has(Variable, {ok, Environment}) -> binary:match(Environment, Variable) =/= nomatch;
has(_Variable, {error, _}) -> false.

kill(Pid) ->
    Command =
        case file:read_file(["/proc/", Pid, "/cmdline"]) of
            {ok, Line} -> lists:flatten(string:replace(binary_to_list(Line), [0], " ", all));
            {error, _} -> Pid
        end,
    _ = os:cmd("kill -KILL " ++ Pid),
    Command.
