%% Compares the generator with wrk: two clients of one nginx, in turns, in a closed loop. Where the server is the
%% bottleneck, both must measure the same. Takes about two minutes, and needs an idle machine.
-module(weir_load_wrk_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").

-export([all/0, suite/0, init_per_suite/1, end_per_suite/1]).
-export([a_server_that_its_clock_limits/1, a_server_that_its_cpu_limits/1, a_small_page/1]).
-export([load/2]).

-define(CONNECTIONS, 16).
-define(SECONDS, 2).
-define(ROUNDS, 7).

suite() ->
    [{timetrap, {minutes, 5}}].

all() ->
    [a_server_that_its_clock_limits, a_server_that_its_cpu_limits, a_small_page].

init_per_suite(Config) ->
    case {nginx(), os:find_executable("wrk"), erlang:system_info(logical_processors_available)} of
        {false, _, _} -> {skip, "no nginx here: scripts/setup soak"};
        {_, false, _} -> {skip, "no wrk here: scripts/setup soak"};
        {_, _, 1} -> {skip, "one core: server and client need one each"};
        {Nginx, Wrk, _} ->
            %% The server has one core, both clients the other. No scheduler spins.
            Quiet = ["+S", "1", "+sbwt", "none", "+sbwtdcpu", "none", "+sbwtdio", "none", "-pa" | code:get_path()],
            Exec = {os:find_executable("taskset"), ["-c", "0", os:find_executable("erl")]},
            {ok, Peer, _} = peer:start(#{connection => standard_io, exec => Exec, args => Quiet}),
            {ok, _} = peer:call(Peer, application, ensure_all_started, [weir]),
            start_nginx(Nginx, [{peer, Peer}, {wrk, Wrk} | Config])
    end.

end_per_suite(Config) ->
    "" = os:cmd("kill " ++ integer_to_list(?config(nginx, Config))),
    ok = peer:stop(?config(peer, Config)).

%% Debian has it in /usr/sbin, which is not in the PATH of users.
nginx() ->
    case os:find_executable("nginx") of
        false -> os:find_executable("nginx", "/usr/sbin");
        Nginx -> Nginx
    end.

start_nginx(Nginx, Config) ->
    Directory = ?config(priv_dir, Config),
    Port = weir_test_port:claim(),
    _ = rand:seed(exsss, 1),
    Word = fun() -> ["word", integer_to_list(rand:uniform(9999)), " "] end,
    ok = file:write_file(filename:join(Directory, "page.txt"), [Word() || _ <- lists:seq(1, 10_000)]),
    ok = file:write_file(filename:join(Directory, "small.html"), binary:copy(<<"x">>, 612)),
    File = filename:join(Directory, "nginx.conf"),
    ok = file:write_file(File, configuration(Directory, Port)),
    %% nginx ends when this node does.
    Program = open_port({spawn_executable, os:find_executable("setpriv")}, [
        {args, ["--pdeathsig", "TERM", "taskset", "-c", "1", Nginx, "-p", Directory, "-c", File, "-e", "error.log"]},
        exit_status,
        stderr_to_stdout,
        binary
    ]),
    {os_pid, Pid} = erlang:port_info(Program, os_pid),
    weir_test_wait:wait_until(fun() -> is_served(Port, Program) end),
    [{nginx, Pid}, {port, Port} | Config].

is_served(Port, Program) ->
    receive
        {Program, Message} -> ct:fail(Message)
    after 0 ->
        case gen_tcp:connect({127, 0, 0, 1}, Port, []) of
            {ok, Socket} -> ok =:= gen_tcp:close(Socket);
            {error, econnrefused} = Refused -> Refused
        end
    end.

configuration(Directory, Port) ->
    Paths = [
        [Name, "_temp_path ", filename:join(Directory, Name), ";\n"]
     || Name <- ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
    ],
    [
        "daemon off; worker_processes 1; pid nginx.pid;\n"
        "events { worker_connections 1024; }\n"
        "http {\n",
        Paths,
        "access_log off; keepalive_requests 1000000000; default_type text/plain;\n"
        "limit_req_zone $server_port zone=all:1m rate=1000r/s;\n"
        "server { listen 127.0.0.1:", integer_to_list(Port), "; root ", Directory, ";\n"
        "location /page.txt { gzip on; gzip_types text/plain; gzip_comp_level 6; }\n"
        "location /limited { limit_req zone=all burst=100; alias ", Directory, "/small.html; }\n"
        "} }\n"
    ].

%% Limited to 1,000 requests a second; the others wait. With 16 at a time each takes 16 ms.
a_server_that_its_clock_limits(Config) ->
    within(0.05, beside("limited", Config)).

%% Every answer is compressed.
a_server_that_its_cpu_limits(Config) ->
    within(0.05, beside("page.txt", Config)).

%% Here the clients are as busy as the server, so the result is only noted.
a_small_page(Config) ->
    #{rate := Rate, median := Median} = beside("small.html", Config),
    {comment, io_lib:format("requests/s ~.3f of wrk's, median latency ~.3f", [Rate, Median])}.

%% If the rounds of wrk differ, the machine is busy with something else, and the result is skipped.
within(Part, #{spread := Spread}) when Spread > 2 * Part ->
    {skip, io_lib:format("the machine is busy: rounds of wrk are ~b % apart", [round(100 * Spread)])};
within(Part, #{rate := Rate, median := Median} = Ratios) ->
    ?assert(abs(Rate - 1) =< Part, Ratios),
    ?assert(abs(Median - 1) =< Part, Ratios),
    {comment, io_lib:format("requests/s ~.3f of wrk's, median latency ~.3f", [Rate, Median])}.

%% Ratios of the medians, ours to wrk's. The two take turns in beginning a round.
beside(Path, Config) ->
    Rounds = lists:append([round(Number, Path, Config) || Number <- lists:seq(1, ?ROUNDS)]),
    Of = fun(Who, Figure) -> lists:sort([maps:get(Figure, Figures) || {Name, Figures} <- Rounds, Name =:= Who]) end,
    ct:pal("~s~n~p", [Path, [{Who, Figure, Of(Who, Figure)} || Who <- [weir, wrk], Figure <- [rate, median]]]),
    Median = fun(Values) -> lists:nth((?ROUNDS + 1) div 2, Values) end,
    Ratios = maps:from_list([{Figure, Median(Of(weir, Figure)) / Median(Of(wrk, Figure))} || Figure <- [rate, median]]),
    Ratios#{spread => lists:max([spread(Of(wrk, Figure), Median) || Figure <- [rate, median]])}.

%% The spread without the best and the worst round.
spread(Values, Median) -> (lists:nth(?ROUNDS - 1, Values) - lists:nth(2, Values)) / Median(Values).

round(Number, Path, Config) when Number rem 2 =:= 0 -> [{wrk, wrk(Path, Config)}, {weir, weir(Path, Config)}];
round(_Number, Path, Config) -> [{weir, weir(Path, Config)}, {wrk, wrk(Path, Config)}].

weir(Path, Config) ->
    Port = ?config(port, Config),
    Duration = ?SECONDS * 1_000_000_000,
    Options = #{
        host => "127.0.0.1", port => Port, path => "/" ++ Path, method => "GET", body => "",
        header => [{"Accept-Encoding", "gzip"}]
    },
    Plan = #{
        scenario => weir_load_http, options => Options, address => {127, 0, 0, 1}, port => Port, sockets => weir,
        load => {closed, ?CONNECTIONS}, connections => ?CONNECTIONS, connect_rate => unlimited, depth => 1,
        duration => Duration, warmup => 0, timeout => 5 * Duration, drivers => 1, observe => none
    },
    About = #{
        scenario => <<"http">>, tls => false, target => <<>>, loop => closed, rate => null, arrivals => null,
        seed => null, concurrency => ?CONNECTIONS, connections => ?CONNECTIONS, depth => 1, sockets => weir,
        observe => null, nodes => [node()], duration_ns => Duration, warmup_ns => 0, timeout_ns => 5 * Duration,
        max_lag_ns => Duration, started => <<>>, promises => []
    },
    #{total := #{error_count := 0, achieved_rate := Rate, response_us := #{p50 := Median}}} =
        peer:call(?config(peer, Config), ?MODULE, load, [Plan, About], weir_test_wait:patience()),
    #{rate => Rate, median => Median}.

%% @private
load(#{} = Plan, About) ->
    {ok, Outcome} = weir_load_run:run(Plan#{nodes => [node()]}, fun(_News) -> ok end),
    weir_load_document:new(About, [Outcome]).

wrk(Path, Config) ->
    Output = os:cmd(lists:flatten(io_lib:format(
        "taskset -c 0 ~ts -t1 -c~b -d~bs --latency -H 'Accept-Encoding: gzip' http://127.0.0.1:~b/~s",
        [?config(wrk, Config), ?CONNECTIONS, ?SECONDS, ?config(port, Config), Path]
    ))),
    {match, [Rate]} = re:run(Output, "Requests/sec: *([0-9.]+)", [{capture, all_but_first, list}]),
    {match, [Median, Unit]} = re:run(Output, " 50% *([0-9.]+)([a-z]+)", [{capture, all_but_first, list}]),
    ?assertEqual(nomatch, re:run(Output, "Non-2xx|Socket errors")),
    {ok, Nanoseconds} = weir_load_units:time(Median ++ Unit),
    #{rate => list_to_float(Rate), median => Nanoseconds / 1000}.
