%% The responses of Nchan and of us to one script, byte by byte except dates, ids and boundaries. Each difference has
%% a reason, and each reason a difference. With WEIR_WRITE_RESULTS=1 in the environment it writes
%% conformance/results/nchan.md again.
-module(weir_pubsub_conformance_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

suite() -> [{timetrap, {minutes, 3}}].

all() -> [the_same_but_for_reasons].

init_per_suite(Config) ->
    case weir_pubsub_nchan:find() of
        {ok, _} ->
            {ok, _} = application:ensure_all_started(weir_pubsub),
            %% An empty channel is removed when it was idle for some seconds: a script may take longer.
            Stays = #{idle_timeout => 3600000},
            ok = weir_pubsub:configure(#{
                channels => [
                    {<<"two-*">>, Stays#{max_messages => 2}},
                    {<<"none-*">>, Stays#{max_messages => 0}},
                    {<<"brief-*">>, Stays#{max_age => 1000}},
                    {<<"single-*">>, Stays#{max_subscribers => 1}},
                    {<<"*">>, Stays}
                ]
            }),
            Ports = maps:from_list([{Path, start(Path, Options)} || {Path, Options} <- listeners()]),
            [{ports, Ports} | Config];
        {skip, _} = Skip ->
            Skip
    end.

end_per_suite(_Config) ->
    _ = [weir_http:stop_listener({?MODULE, Path}) || {Path, _} <- listeners()],
    ok = application:stop(weir_pubsub).

init_per_testcase(_Case, Config) -> [{nchan, weir_pubsub_nchan:start()} | Config].

end_per_testcase(_Case, Config) -> weir_pubsub_nchan:stop(proplists:get_value(nchan, Config)).

%% With Nchan the location decides what a plain GET is, here the listener does.
listeners() ->
    Brief = #{poll_timeout => 1000, stream_timeout => 1000},
    [
        {"/sub", #{}},
        {"/poll", #{plain => interval_poll}},
        {"/raw", #{plain => raw}},
        {"/parts", #{poll_answer => multipart}},
        {"/lines", #{poll_answer => raw}},
        {"/brief", Brief},
        {"/brief-parts", Brief#{poll_answer => multipart}},
        {"/brief-lines", Brief#{poll_answer => raw}}
    ].

start(Path, Options) ->
    Routes = weir_pubsub_http:routes(
        maps:merge(#{publishers => any, poll_timeout => 3600000, deflate => true}, Options)
    ),
    {ok, _} = weir_http:start_listener({?MODULE, Path}, #{ip => {127, 0, 0, 1}}, Routes),
    weir:get_port({?MODULE, Path}).

ours(Ports) ->
    fun(Path) ->
        [Place, Channel] = string:split(tl(Path), "/"),
        case Ports of
            #{[$/ | Place] := Port} -> {Port, "/sub/" ++ Channel};
            #{"/sub" := Port} -> {Port, Path}
        end
    end.

the_same_but_for_reasons(Config) ->
    #{port := Port} = proplists:get_value(nchan, Config),
    Ours = ours(proplists:get_value(ports, Config)),
    Cases = lists:zip(lists:seq(1, length(weir_pubsub_conformance:cases())), weir_pubsub_conformance:cases()),
    Results = all_at_once(
        fun({_, {Name, _}} = Case) ->
            [Theirs, Our] = all_at_once(fun(Server) -> weir_pubsub_conformance:run(Server, Case) end, [
                fun(Path) -> {Port, Path} end, Ours
            ]),
            Differences = [
                {weir_pubsub_conformance_differences:reason(Name, Difference), Difference}
             || Difference <- weir_pubsub_conformance_differences:differences(Theirs, Our)
            ],
            {Name, Theirs, Differences}
        end,
        Cases
    ),
    case os:getenv("WEIR_WRITE_RESULTS") of
        "1" ->
            ok = file:write_file(
                filename:join(tree(filename:dirname(code:which(?MODULE))), "conformance/results/nchan.md"),
                table(Results)
            );
        _ ->
            ok
    end,
    ?assertEqual([], [{Name, Difference} || {Name, _, Differences} <- Results, {none, Difference} <- Differences]),
    Used = lists:usort([Reason || {_, _, Differences} <- Results, {Reason, _} <- Differences]),
    Unused = [Reason || {_, Reason} <- weir_pubsub_conformance_differences:reasons()] -- Used,
    %% The table is for Nchan of Debian 12. Later versions have fixed some of the differences.
    case os:cmd("nginx -v 2>&1") of
        "nginx version: nginx/1.22." ++ _ -> ?assertEqual([], Unused);
        Version -> ct:log("~tsunused: ~tp", [Version, Unused])
    end.

%% Most of their time they wait for timeouts.
all_at_once(Fun, Elements) ->
    Running = [{spawn_monitor(fun() -> exit({done, Fun(Element)}) end), Element} || Element <- Elements],
    [
        case weir_pubsub_test:ended(Process) of
            {done, Result} -> Result;
            Reason -> error({Element, Reason})
        end
     || {Process, Element} <- Running
    ].

tree(Directory) ->
    case filelib:is_regular(filename:join([Directory, "bin", "weir"])) of
        true -> Directory;
        false -> tree(filename:dirname(Directory))
    end.

table(Results) ->
    Same = length([Name || {Name, _, []} <- Results]),
    Reasons = lists:usort([Reason || {_, _, Differences} <- Results, {Reason, _} <- Differences]),
    [
        "# Nchan's answers and ours\n\n"
        "Written by `weir_pubsub_conformance_SUITE` (`make test`) with `WEIR_WRITE_RESULTS=1`. "
        "Each case is a script of requests, sent to Nchan 1.3.6 on nginx\n"
        "and to weir_pubsub. Statuses, fields and bodies are compared byte by byte, except dates, ids, boundaries, "
        "and how long ago something was;\n"
        "a Content-Length counts as the same if both fit their bodies.\n"
        "The requests are in `weir_pubsub_conformance`. What the tests of Nchan itself cover is in "
        "[nchan-tests.md](../nchan-tests.md).\n\n",
        io_lib:format(
            "Of ~b cases ~b have the same responses; ~b differ, each for one of the reasons at the end.~n~n", [
                length(Results), Same, length(Results) - Same
            ]
        ),
        "| case | status of the last answer | differs in |\n| --- | --- | --- |\n",
        [
            ["| ", Name, " | ", last_status(Answers), " | ", differs(Differences), " |\n"]
         || {Name, Answers, Differences} <- Results
        ],
        "\n| why | cases | for example, Nchan | and here |\n| --- | --- | --- | --- |\n",
        [reason(Reason, Results) || Reason <- Reasons]
    ].

last_status(Answers) ->
    case [Status || Parts <- Answers, {status, Status} <- Parts, is_integer(Status)] of
        [] -> "-";
        Statuses -> integer_to_list(lists:last(Statuses))
    end.

differs([]) -> "-";
differs(Differences) -> lists:join(", ", lists:usort([part(Part) || {_, {Part, _, _}} <- Differences])).

part(Part) when is_atom(Part) -> atom_to_list(Part);
part(Part) -> binary_to_list(Part).

reason(Reason, Results) ->
    Found = [{Name, Difference} || {Name, _, Differences} <- Results, {Of, Difference} <- Differences, Of =:= Reason],
    [{_, {_, Theirs, Ours}} | _] = Found,
    Cases = integer_to_list(length(lists:usort([Name || {Name, _} <- Found]))),
    [
        "| ",
        case Reason of
            none -> "none";
            _ -> Reason
        end,
        " | ",
        Cases,
        " | ",
        shown(Theirs),
        " | ",
        shown(Ours),
        " |\n"
    ].

shown(What) ->
    Text = lists:flatten(io_lib:format("~0tp", [What])),
    ["`", [case Byte of $| -> "\\|"; $` -> "'"; _ -> Byte end || Byte <- lists:sublist(Text, 120)], "`"].
