%% @doc One suite in a fresh node: with OTP's TCP module, or with Weir's for the whole VM.
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
%% What became of a case, and how many sockets it has asked for.

%% @doc Runs cases of a suite (all, or a list of names) that was built in a directory, within a limit in milliseconds, with its
%% logs under another one. The node and the nodes that the suite starts get the VM's TCP module by an inetrc file, as a
%% user would have it.
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

%% Where the applications of this tree are: also the nodes that a suite starts find them there.
libraries() ->
    Ours = filename:dirname(filename:absname(code:lib_dir(weir_conformance))),
    case os:getenv("ERL_LIBS") of
        false -> Ours;
        Others -> Ours ++ ":" ++ Others
    end.

%% @doc What the node does: runs the suite and halts, or halts when its input ends with who has started it. Weir is started before, since suites count descriptors, and its
%% pollsets have some.
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
    %% What a suite has left unsent would otherwise keep the node for ever.
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

%% @doc What became of the cases, by the file of events that the hook has written and by how the node has ended.
-spec results(file:filename(), {ok, binary(), Status :: integer()} | {timeout, binary()}) -> #{Case :: atom() => result()}.
results(File, Output) ->
    Results = lists:foldl(fun note/2, #{}, events(File)),
    maps:map(fun(_Case, Result) -> ended(Result, Output) end, Results).

%% A node that was killed has perhaps written nothing, or half of its last event: what stands before that counts.
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

%% A case that never ended took the node with it, or all the time there was.
ended(Result = #{result := unknown}, {timeout, _}) -> Result#{result := failed, reason := "did not end in time"};
ended(Result = #{result := unknown}, {ok, _, Status}) ->
    Result#{result := failed, reason := lists:concat(["the node ended with status ", Status])};
ended(Result, _Output) -> Result.
