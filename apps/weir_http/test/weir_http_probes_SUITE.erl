%% Sends the 215 probes of Http11Probe to a listener: none may fail, and the answers must equal the table in
%% conformance/results/http11-probes.md. WEIR_WRITE_RESULTS=1 in the environment rewrites that file.
-module(weir_http_probes_SUITE).

-include_lib("stdlib/include/assert.hrl").

-export([all/0, suite/0, init_per_suite/1, end_per_suite/1]).
-export([names_are_those_of_the_list/1, no_probe_fails/1, answers_are_those_of_the_table/1]).

-define(LISTENER, ?MODULE).

suite() -> [{timetrap, {minutes, 3}}].

all() -> [names_are_those_of_the_list, no_probe_fails, answers_are_those_of_the_table].

init_per_suite(Config) ->
    {ok, _} = application:ensure_all_started(weir_http),
    {ok, _} = weir_http:start_listener(?LISTENER, #{ip => {127, 0, 0, 1}}, [
        {"/", weir_http_echo, {reply, 200, [{<<"content-type">>, <<"text/plain">>}], <<"OK">>}, #{
            methods => [<<"GET">>]
        }},
        {"/", weir_http_echo, echo, #{methods => [<<"POST">>]}},
        {"/fields", weir_http_echo, fields, #{methods => [<<"GET">>, <<"POST">>]}},
        {"/cookies", weir_http_echo, cookies}
    ]),
    Port = weir:get_port(?LISTENER),
    Self = self(),
    Asked = [
        {Probe,
            spawn_link(fun() ->
                {_, _, Bytes, _} = Probe,
                Self ! {self(), weir_http_client:observe(?LISTENER, Port, Bytes)}
            end)}
     || Probe <- weir_http_probes:all()
    ],
    Observed = [
        {Probe,
            receive
                {Pid, Seen} -> Seen
            after weir_test_wait:patience() -> error({not_answered, Probe})
            end}
     || {Probe, Pid} <- Asked
    ],
    [{observed, Observed} | Config].

end_per_suite(_Config) ->
    ok = weir_http:stop_listener(?LISTENER).

names_are_those_of_the_list(_Config) ->
    Names = [Name || {Name, _, _, _} <- weir_http_probes:all()],
    ?assertEqual(215, length(Names)),
    ?assertEqual(215, length(lists:usort(Names))).

no_probe_fails(Config) ->
    Failed = [
        {Name, weir_http_probes:answer(Seen)}
     || {Probe = {Name, _, _, _}, Seen} <- proplists:get_value(observed, Config),
        weir_http_probes:verdict(Probe, Seen) =:= fail
    ],
    ?assertEqual([], Failed).

answers_are_those_of_the_table(Config) ->
    Table = unicode:characters_to_binary(table(proplists:get_value(observed, Config))),
    File = filename:join(tree(filename:dirname(code:which(?MODULE))), "conformance/results/http11-probes.md"),
    case os:getenv("WEIR_WRITE_RESULTS") of
        "1" -> ok = file:write_file(File, Table);
        _ -> ?assertEqual({ok, Table}, file:read_file(File))
    end.

tree(Directory) ->
    case filelib:is_regular(filename:join([Directory, "bin", "weir"])) of
        true -> Directory;
        false -> tree(filename:dirname(Directory))
    end.

table(Observed) ->
    Rows = [
        {Name, Level, weir_http_probes:answer(Seen), weir_http_probes:verdict(Probe, Seen)}
     || {Probe = {Name, Level, _, _}, Seen} <- lists:sort(Observed)
    ],
    Count = fun(Verdict) -> length([V || {_, _, _, V} <- Rows, V =:= Verdict]) end,
    [
        "# The probes of Http11Probe on weir_http\n"
        "\n"
        "Written by `weir_http_probes_SUITE` with `WEIR_WRITE_RESULTS=1`, and compared with by every other run of it. "
        "An answer\n"
        "is the statuses of the responses, and whether the connection was open afterwards. The requests stand in\n"
        "`weir_http_probes_compliance`, `_malformed` and `_smuggling`; "
        "names, levels and expected answers are those of\n"
        "[Http11Probe](https://github.com/MDA2AV/Http11Probe).\n"
        "\n",
        io_lib:format("~b probes: ~b pass, ~b with a warning, ~b failed.~n", [
            length(Rows), Count(pass), Count(warn), Count(fail)
        ]),
        "\n"
        "| probe | level | answer | verdict |\n"
        "| --- | --- | --- | --- |\n",
        [
            io_lib:format("| ~s | ~s | ~s | ~s |~n", [Name, level(Level), Answer, Verdict])
         || {Name, Level, Answer, Verdict} <- Rows
        ]
    ].

level(none) -> "-";
level(Level) -> string:uppercase(atom_to_list(Level)).
