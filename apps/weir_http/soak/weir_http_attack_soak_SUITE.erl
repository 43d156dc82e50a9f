%% slowhttptest in its four modes with 4,000 connections, 10,000 idle connections, and floods. The delays of an honest
%% client are reported, but not judged (WEIR_WRITE_RESULTS=1 writes conformance/results/http11-attacks.md). The case
%% fails unless connections, descriptors and memory are as before at the end.
-module(weir_http_attack_soak_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").

-export([all/0, suite/0, init_per_suite/1, end_per_suite/1]).
-export([attacks/1]).

-define(REQUESTS, 2000).

suite() -> [{timetrap, {minutes, 20}}].

all() -> [attacks].

init_per_suite(Config) ->
    case os:find_executable("slowhttptest") of
        false ->
            {skip, "not here: slowhttptest (scripts/setup soak)"};
        Program ->
            Server = weir_http_attack:start(#{}, []),
            _ = weir_http_attack:honest(weir_http_attack:port(Server), ?REQUESTS),
            [{server, Server}, {slowhttptest, Program} | Config]
    end.

end_per_suite(Config) -> weir_http_attack:stop(?config(server, Config)).

attacks(Config) ->
    Server = ?config(server, Config),
    Port = weir_http_attack:port(Server),
    Slow = fun(Mode) -> fun() -> slowhttptest(Mode, Port, Config) end end,
    Rows = [
        attack(Name, Attack, Server)
     || {Name, Attack} <- [
            {"nothing", fun() -> timer:sleep(2000) end},
            {"slow heads, 4,000 connections (slowhttptest -H)", Slow(["-H", "-i", "5", "-x", "24"])},
            {"slow bodies, 4,000 connections (slowhttptest -B)", Slow(["-B", "-i", "5", "-s", "8192"])},
            {"ranges, 4,000 connections (slowhttptest -R)", Slow(["-R", "-a", "0", "-b", "3000"])},
            {"slow readers, 4,000 connections (slowhttptest -X)",
                Slow(["-X", "-w", "512", "-y", "1024", "-n", "5", "-z", "32", "-k", "3"])},
            {"10,000 idle connections", fun() ->
                Sockets = weir_http_attack:idle(Port, 10000),
                timer:sleep(2000),
                [gen_tcp:close(Socket) || Socket <- Sockets]
            end},
            {"20,000 resets", fun() -> weir_http_attack:resets(Port, 20000) end},
            {"200 MB of random bytes", fun() -> weir_http_attack:floods(Port, 200, fun rand:bytes/1) end},
            {"200 MB of zeros", fun() -> weir_http_attack:floods(Port, 200, fun(Size) -> <<0:Size/unit:8>> end) end},
            {"2,000 compressed bombs of 20 MB", fun() -> weir_http_attack:bombs(Port, 2000) end}
        ]
    ],
    Table = unicode:characters_to_binary([
        "# An honest client beside attacks\n"
        "\n"
        "Written by `weir_http_attack_soak_SUITE` (`make soak`) with `WEIR_WRITE_RESULTS=1`: one run, server, "
        "attacker and honest client on\n"
        "one machine. The client asks 2,000 times at least, every tenth on a new connection. "
        "What else the machine did shows in the first row.\n"
        "Afterwards connections, descriptors and memory (within 8 MiB) are what they were, which the suite checks. "
        "Slow readers take the kernel's\n"
        "memory for TCP; the guide's page on limits says what bounds that.\n"
        "\n",
        io_lib:format("OTP ~s, ~b processors.~n", [
            erlang:system_info(otp_release), erlang:system_info(logical_processors)
        ]),
        "\n"
        "| attack | p50, us | p99, us | longest, us |\n"
        "| --- | --- | --- | --- |\n",
        [
            io_lib:format("| ~s | ~b | ~b | ~b |~n", [Name, Half, Most, Longest])
         || {Name, Half, Most, Longest, _} <- Rows
        ]
    ]),
    ct:pal("~ts", [Table]),
    case os:getenv("WEIR_WRITE_RESULTS") of
        "1" -> ok = file:write_file(weir_http_peers:file("conformance/results/http11-attacks.md"), Table);
        _ -> ok
    end,
    ?assertEqual([], [{Name, Rest} || {Name, _, _, _, Rest} <- Rows, Rest =/= ok]).

%% Sends honest requests until the attack is over.
attack(Name, Attack, Server) ->
    Before = weir_http_attack:left(Server),
    {Attacker, Monitor} = spawn_monitor(Attack),
    timer:sleep(500),
    Times = beside(weir_http_attack:port(Server), Monitor, []),
    Half = weir_http_attack:percentile(Times, 50),
    Most = weir_http_attack:percentile(Times, 99),
    ct:pal("~s: ~b requests, ~p", [Name, length(Times), {Half, Most, lists:last(Times), Attacker}]),
    {Name, Half, Most, lists:last(Times), weir_http_attack:at_rest(Server, Before)}.

beside(Port, Monitor, Before) ->
    Times = lists:merge(Before, weir_http_attack:honest(Port, ?REQUESTS)),
    receive
        {'DOWN', Monitor, process, _, normal} -> Times;
        {'DOWN', Monitor, process, _, Reason} -> error(Reason)
    after 0 -> beside(Port, Monitor, Times)
    end.

slowhttptest(Mode, Port, Config) ->
    Url = "http://127.0.0.1:" ++ integer_to_list(Port) ++ "/large",
    %% The program ends with this VM.
    Program = open_port({spawn_executable, weir_http_peers:file("bench/leash")}, [
        {args, [?config(slowhttptest, Config), "-c", "4000", "-r", "1000", "-l", "15", "-p", "3", "-u", Url | Mode]},
        exit_status,
        stderr_to_stdout,
        binary
    ]),
    ended(Program).

ended(Program) ->
    receive
        {Program, {data, _}} -> ended(Program);
        {Program, {exit_status, _}} -> ok
    end.
