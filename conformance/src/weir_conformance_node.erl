%% @doc Runs one suite in a fresh node, with OTP's TCP module or with Weir's for the whole VM.
-module(weir_conformance_node).

-export([run/5]).
-export([main/0]).
-export([results/2]).

-export_type([side/0, result/0]).

-type side() :: stock | weir.

-type result() :: #{
    result := passed | failed | skipped,
    reason := string(),
    on_weir := non_neg_integer(),
    elsewhere := non_neg_integer()
}.
%% The outcome of a case, and the number of sockets that it requested.

%% @doc Runs cases (`all', or a list of names) of a compiled suite in a directory, with a limit in milliseconds and
%% its logs in another directory. An inetrc file sets the TCP module of the node and of the nodes that the suite
%% starts, as a user would.
-spec run(side(), module(), Cases, Directories, Limit) -> #{Case :: atom() => result()} when
    Cases :: all | [atom()],
    Directories :: #{suites := file:filename(), logs := file:filename()},
    Limit :: timeout().
run(Side, Suite, Cases, #{suites := Suites, logs := Logs}, Limit) ->
    Events = filename:join(Logs, "events"),
    ok = filelib:ensure_dir(Events),
    _ = file:delete(Events),
    Inetrc = filename:join(Logs, "inetrc"),
    ok = file:write_file(Inetrc, inetrc(Side)),
    Name = lists:concat([Side, "_", Suite, "_", os:getpid()]),
    Output = weir_conformance_program:run(
        filename:join([code:root_dir(), "bin", "erl"]),
        ["-noshell", "-sname", Name, "-pa", Suites, "-s", ?MODULE_STRING, "main", "-extra", Suites, Logs, Events] ++
            [atom_to_list(Suite) | [atom_to_list(Case) || Cases =/= all, Case <- Cases]],
        #{env => [{"ERL_LIBS", libraries()}, {"ERL_INETRC", Inetrc}], cd => Logs, limit => Limit}
    ),
    ok = file:write_file(filename:join(Logs, "console"), element(2, Output)),
    results(Events, Output).

inetrc(stock) -> "";
inetrc(weir) -> "{tcp, weir_tcp}.\n".

%% The path of this tree's applications, also for nodes that a suite starts.
libraries() ->
    Ours = filename:dirname(filename:absname(code:lib_dir(weir_conformance))),
    case os:getenv("ERL_LIBS") of
        false -> Ours;
        Others -> Ours ++ ":" ++ Others
    end.

%% @doc The node's part: runs the suite and halts, or halts when its input ends because its starter has gone. Weir is
%% started first, because suites count descriptors and Weir's pollsets have some.
-spec main() -> no_return().
main() ->
    [Suites, Logs, Events, Suite | Cases] = init:get_plain_arguments(),
    _ = spawn(fun() -> ends_with_input() end),
    ok = start(inet_db:tcp_module()),
    Result = ct:run_test([
        {dir, Suites},
        {suite, [list_to_atom(Suite)]},
        {logdir, Logs},
        {auto_compile, false},
        {basic_html, true},
        {ct_hooks, [{weir_conformance_hook, {Events, [list_to_atom(Case) || Case <- Cases]}}]}
    ]),
    io:format("~tp~n", [Result]),
    %% Without flush, unsent data of a suite cannot keep the node from halting.
    halt(0, [{flush, false}]).

start(weir_tcp) ->
    {ok, _} = application:ensure_all_started(weir),
    ok;
start(_Other) ->
    ok.

ends_with_input() ->
    case io:get_line("") of
        eof -> halt(1, [{flush, false}]);
        _ -> ends_with_input()
    end.

%% @doc Combines the events that the hook has written with the way the node ended.
-spec results(file:filename(), {ok, binary(), Status :: integer()} | {timeout, binary()}) ->
    #{Case :: atom() => result()}.
results(File, Output) ->
    Results = lists:foldl(fun note/2, #{}, events(File)),
    maps:map(fun(_Case, Result) -> ended(Result, Output) end, Results).

%% A killed node may have written nothing, or only part of its last event: complete events count.
events(File) ->
    case file:open(File, [read, {encoding, utf8}]) of
        {ok, Device} ->
            try
                events_of(Device)
            after
                ok = file:close(Device)
            end;
        {error, enoent} ->
            []
    end.

events_of(Device) ->
    case io:read(Device, "") of
        {ok, Event} -> [Event | events_of(Device)];
        _ -> []
    end.

note({started, {_Suite, Case}}, Results) ->
    Results#{Case => #{result => unknown, reason => "", on_weir => 0, elsewhere => 0}};
note({ended, {_Suite, Case}, OnWeir, Elsewhere}, Results) ->
    #{Case := Result} = Results,
    Results#{Case := Result#{result := passed, on_weir := OnWeir, elsewhere := Elsewhere}};
note({Result, {_Suite, Case}, Reason}, Results) ->
    Before = maps:get(Case, Results, #{on_weir => 0, elsewhere => 0}),
    Results#{Case => Before#{result => Result, reason => Reason}}.

%% A case that never ended has crashed the node or used up the time limit.
ended(Result = #{result := unknown}, {timeout, _}) -> Result#{result := failed, reason := "did not end in time"};
ended(Result = #{result := unknown}, {ok, _, Status}) ->
    Result#{result := failed, reason := lists:concat(["the node ended with status ", Status])};
ended(Result, _Output) -> Result.
