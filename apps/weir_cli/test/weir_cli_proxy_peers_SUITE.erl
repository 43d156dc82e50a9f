%% Runs the same varnishtest cases against `bin/weir proxy' and HAProxy. They cover the subjects of HAProxy's own tests
%% of its TCP mode. Each case in the directory weir_cli_proxy_peers_SUITE_data has a configuration for both.
%%
%% With WEIR_WRITE_RESULTS=1 in the environment it rewrites conformance/results/proxy.md.
-module(weir_cli_proxy_peers_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").

-export([all/0, suite/0, init_per_suite/1, end_per_suite/1]).
-export([both_pass/1]).

%% Cases that run at the same time. Each takes two seconds, and a third of a second of CPU time.
-define(AT_A_TIME, 12).

suite() -> [{timetrap, {minutes, 15}}].

all() -> [both_pass].

init_per_suite(Config) ->
    case [Program || Program <- ["varnishtest", "haproxy", "python3"], find(Program) =:= false] of
        [] -> weir_cli_program:find(Config);
        [Missing | _] -> {skip, "no " ++ Missing}
    end.

end_per_suite(_Config) -> ok.

%% Debian installs haproxy in /usr/sbin, which is only in root's path.
find(Program) -> os:find_executable(Program, os:getenv("PATH", "") ++ ":/usr/sbin").

both_pass(Config) ->
    Cases = lists:sort(filelib:wildcard(filename:join(?config(data_dir, Config), "*.vtc"))),
    Peers = [{"weir", weir(Config)}, {"haproxy", haproxy(Config)}],
    Runs = [{Case, Peer, Macros} || Case <- Cases, {Peer, Macros} <- Peers],
    Ran = some_at_a_time(fun({Case, Peer, Macros}) -> {{Case, Peer}, run(Case, Macros, Config)} end, Runs),
    Results = [{Case, [{Peer, proplists:get_value({Case, Peer}, Ran)} || {Peer, _} <- Peers]} || Case <- Cases],
    Table = table(Results),
    ct:log("~ts", [Table]),
    case os:getenv("WEIR_WRITE_RESULTS") of
        "1" -> ok = file:write_file(results_file(Config), Table);
        _ -> ok
    end,
    ?assertEqual([], [
        {filename:basename(Case), Peer, Result}
     || {Case, Each} <- Results, {Peer, Result} <- Each, not is_expected(Case, Peer, Result)
    ]).

is_expected(Case, "haproxy", Result) -> (failure_of_haproxy(Case) =:= none) =:= (Result =:= passed);
is_expected(_Case, "weir", Result) -> Result =:= passed.

%% If HAProxy cannot pass a case, the case says why.
failure_of_haproxy(Case) ->
    {ok, Text} = file:read_file(Case),
    case re:run(Text, "^# HAProxy fails: (.*)", [multiline, {capture, all_but_first, binary}]) of
        {match, [Why]} -> Why;
        nomatch -> none
    end.

%% The next case begins when one has ended.
some_at_a_time(Fun, Items) ->
    {First, Later} = lists:split(min(?AT_A_TIME, length(Items)), Items),
    ok = lists:foreach(fun(Item) -> begin_one(Fun, Item) end, First),
    results(Fun, length(First), Later).

begin_one(Fun, Item) -> spawn_monitor(fun() -> exit({result, Fun(Item)}) end).

results(_Fun, 0, []) ->
    [];
results(Fun, Running, Later) ->
    receive
        {'DOWN', _, process, _, {result, Result}} when Later =:= [] ->
            [Result | results(Fun, Running - 1, [])];
        {'DOWN', _, process, _, {result, Result}} ->
            begin_one(Fun, hd(Later)),
            [Result | results(Fun, Running, tl(Later))];
        {'DOWN', _, process, _, Reason} ->
            ct:fail(Reason)
    end.

results_file(Config) ->
    Root = filename:dirname(filename:dirname(?config(weir, Config))),
    filename:join([Root, "conformance", "results", "proxy.md"]).

%% The scripts that cases call: to start the program on the directory of a case, and to control it.
weir(Config) ->
    Bound = bound(),
    Weir = ["env ", [[Name, $=, Value, $\s] || {Name, Value} <- ?config(environment, Config)], ?config(weir, Config)],
    [
        {"start", script(Config, "weir-start", ["exec ", Bound, Weir, " proxy --config \"$1/proxy.toml\" --drain 0"])},
        {"reload", script(Config, "weir-reload", ["kill -HUP \"$1\""])},
        {"drain", script(Config, "weir-drain", [Weir, " proxy drain web \"$2\" --control \"$1\""])},
        {"enable", script(Config, "weir-enable", [Weir, " proxy enable web \"$2\" --control \"$1\""])}
    ].

haproxy(Config) ->
    Say = fun(Command) ->
        [
            "python3 -c 'import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); "
            "s.sendall((\"set server front/\" + sys.argv[2] + \" state ",
            Command,
            "\\n\").encode()); print(s.recv(1000).decode())' \"$1\" \"$2\""
        ]
    end,
    [
        {"start",
            script(Config, "haproxy-start", ["exec ", bound(), find("haproxy"), " -W -db -f \"$1/haproxy.cfg\""])},
        {"reload", script(Config, "haproxy-reload", haproxy_reload())},
        {"drain", script(Config, "haproxy-drain", Say("drain"))},
        {"enable", script(Config, "haproxy-enable", Say("ready"))}
    ].

%% A master that is still starting loses the signal. It has received the signal when it has another worker.
haproxy_reload() ->
    "newest() { pgrep -n -P $1; }\n"
    "before=$(newest $1)\n"
    "for try in $(seq 1000); do\n"
    "    [ $((try % 10)) = 1 ] && kill -USR2 $1\n"
    "    sleep 0.1\n"
    "    [ \"$(newest $1)\" = \"$before\" ] || exit 0\n"
    "done\n"
    "exit 1".

%% The prefix of commands that end with the case that has started them.
bound() ->
    {Program, Arguments} = weir_cli_program:bound("", []),
    lists:join(" ", [Program | Arguments]).

script(Config, Name, Text) ->
    File = filename:join(?config(priv_dir, Config), Name),
    ok = file:write_file(File, ["#!/bin/sh\n", Text, "\n"]),
    ok = file:change_mode(File, 8#755),
    File.

run(Case, Macros, Config) ->
    [Port, Inner, Other] = [integer_to_list(weir_test_port:claim()) || _ <- [1, 2, 3]],
    Listens = script(Config, "await-" ++ Port, [
        "for _ in $(seq 12000); do grep -q \":$(printf %04X ",
        Port,
        ") 00000000:0000 0A\" /proc/net/tcp && exit 0; sleep 0.05; done; exit 1"
    ]),
    Defined = lists:append([
        ["-D", Name ++ "=" ++ Value]
     || {Name, Value} <- [{"port", Port}, {"inner", Inner}, {"other", Other}, {"await", Listens} | Macros]
    ]),
    {Program, Arguments} = weir_cli_program:bound(find("varnishtest"), ["-t", "600" | Defined] ++ [Case]),
    Opened = open_port({spawn_executable, Program}, [
        {args, Arguments}, exit_status, stderr_to_stdout, binary
    ]),
    ended(Opened, <<>>).

ended(Opened, Said) ->
    receive
        {Opened, {data, Data}} -> ended(Opened, <<Said/binary, Data/binary>>);
        {Opened, {exit_status, 0}} -> passed;
        {Opened, {exit_status, _}} -> end_programs(Said), {failed, Said}
    end.

%% A case that is killed because it took too long leaves its programs running.
end_programs(Said) ->
    case re:run(Said, "PID: ([0-9]+)", [global, {capture, all_but_first, list}]) of
        {match, Pids} -> [os:cmd("kill " ++ Pid) || [Pid] <- Pids];
        nomatch -> []
    end.

table(Results) ->
    [
        "# The same cases before weir proxy and HAProxy\n\n"
        "Written by `weir_cli_proxy_peers_SUITE` (`make test`) with `WEIR_WRITE_RESULTS=1`. "
        "Each case is a file for varnishtest in\n"
        "`apps/weir_cli/test/weir_cli_proxy_peers_SUITE_data`, with a configuration for either program. HAProxy is ",
        version(),
        ".\n\n"
        "| case | weir proxy | HAProxy |\n| --- | --- | --- |\n",
        [
            ["| ", title(Case), " | ", lists:join(" | ", [word(Case, Result) || Result <- Each]), " |\n"]
         || {Case, Each} <- Results
        ]
    ].

version() ->
    {match, [Version]} = re:run(os:cmd(find("haproxy") ++ " -v"), "version ([0-9]+[.][0-9]+)", [
        {capture, all_but_first, list}
    ]),
    Version.

title(Case) ->
    {ok, Text} = file:read_file(Case),
    {match, [Title]} = re:run(Text, "^varnishtest \"([^\"]*)\"", [{capture, all_but_first, binary}]),
    Title.

word(_Case, {_Peer, passed}) -> "passed";
word(_Case, {"weir", {failed, _}}) -> "**failed**";
word(Case, {"haproxy", {failed, _}}) ->
    case failure_of_haproxy(Case) of
        none -> "**failed**";
        Why -> ["failed: ", Why]
    end.
