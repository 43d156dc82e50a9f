%% @doc Runs EUnit modules with the time limits of the other tests. EUnit's own limit of five seconds cancels all
%% tests after the one that exceeds it. An EUnit listener reports each result to the runner, including cancelled
%% tests.
-module(weir_test_units).

-behaviour(eunit_listener).

-export([run/1]).
-export([start/1, init/1, handle_begin/3, handle_end/3, handle_cancel/3, terminate/2]).

%% @doc Runs all tests of the modules.
-spec run([module()]) -> ok.
run(Modules) ->
    %% Each module runs in a process of its own, so that it does not find messages of another in its mailbox.
    Tests = [{atom_to_list(Module), {spawn, tests(Module)}} || Module <- Modules],
    _ = eunit:test(Tests, [no_tty, {report, {?MODULE, []}}]),
    ok.

%% The test functions that EUnit itself would find.
tests(Module) ->
    lists:append([
        of_function(Module, Function, atom_to_list(Function)) || {Function, 0} <- Module:module_info(exports)
    ]).

of_function(Module, Function, Name) ->
    case {lists:suffix("_test", Name), lists:suffix("_test_", Name)} of
        {true, _} -> [patient({Module, Function})];
        {_, true} -> [{Name, {generator, fun() -> patient(Module:Function()) end}}];
        _ -> []
    end.

%% Gives each test the time limit of the tree.
patient(Tests) when is_list(Tests), Tests =/= [] ->
    case io_lib:printable_unicode_list(Tests) of
        true -> Tests;
        false -> [patient(Test) || Test <- Tests]
    end;
patient({Title, Test}) when is_list(Title), Title =/= [] ->
    case io_lib:printable_unicode_list(Title) of
        true -> {Title, patient(Test)};
        false -> {patient(Title), patient(Test)}
    end;
patient({Title, Test}) when is_binary(Title) -> {Title, patient(Test)};
patient({Line, Test}) when is_integer(Line), is_function(Test, 0) -> limited({Line, Test});
patient({Module, Function}) when is_atom(Module), is_atom(Function) -> limited({Module, Function});
patient({timeout, Seconds, Test}) -> {timeout, Seconds * weir_test_wait:stretch(), Test};
patient({Kind, Tests}) when Kind =:= spawn; Kind =:= inorder; Kind =:= inparallel -> {Kind, patient(Tests)};
patient({setup, Setup, Tests}) -> {setup, Setup, instantiator(Tests)};
patient({setup, Setup, Cleanup, Tests}) -> {setup, Setup, Cleanup, instantiator(Tests)};
patient({foreach, Setup, Tests}) -> {foreach, Setup, [instantiator(Test) || Test <- Tests]};
patient({foreach, Setup, Cleanup, Tests}) -> {foreach, Setup, Cleanup, [instantiator(Test) || Test <- Tests]};
patient(Test) when is_function(Test, 0) -> limited(Test);
patient(Test) -> Test.

instantiator(Fun) when is_function(Fun, 1) -> fun(Value) -> patient(Fun(Value)) end;
instantiator({Title, Fun}) when is_function(Fun, 1) -> {Title, instantiator(Fun)};
instantiator(Tests) -> patient(Tests).

limited(Test) -> {timeout, weir_test_wait:patience() / 1000, Test}.

%% The listener ---------------------------------------------------------------

%% @private
start(Options) -> eunit_listener:start(?MODULE, Options).

%% @private
init(_Options) -> none.

%% @private
handle_begin(test, Data, State) ->
    {Module, Name} = named(Data),
    weir_test_connection:tell({started, Module, [], Name}),
    State;
handle_begin(group, _Data, State) ->
    State.

%% @private
handle_end(test, Data, State) ->
    {Module, Name} = named(Data),
    Outcome =
        case proplists:get_value(status, Data) of
            ok -> passed;
            {skipped, Reason} -> {skipped, Reason};
            {error, Reason} -> {failed, Reason}
        end,
    weir_test_connection:tell({result, Module, [], Name, proplists:get_value(time, Data, 0), Outcome}),
    State;
handle_end(group, _Data, State) ->
    State.

%% @private A cancelled group was not run, and EUnit does not say how many tests it had.
handle_cancel(test, Data, State) ->
    {Module, Name} = named(Data),
    weir_test_connection:tell({result, Module, [], Name, 0, {failed, {cancelled, proplists:get_value(reason, Data)}}}),
    State;
handle_cancel(group, Data, State) ->
    case proplists:get_value(reason, Data) of
        %% An empty group, or a group whose tests are reported one by one.
        undefined ->
            ok;
        {blame, _} ->
            ok;
        Reason ->
            weir_test_connection:tell(
                {result, eunit, [], proplists:get_value(desc, Data, group), 0, {failed, {cancelled, Reason}}}
            )
    end,
    State.

%% @private
terminate({ok, _}, _State) -> ok;
terminate({error, Reason}, _State) -> weir_test_connection:tell({result, eunit, [], eunit, 0, {failed, Reason}}).

%% A generated test has the name of its generator, and its title or its line.
named(Data) ->
    {Module, Function, _Arity} = proplists:get_value(source, Data),
    Title = [
        io_lib:format(" ~ts", [Text])
     || Text <- [proplists:get_value(desc, Data)], is_binary(Text) orelse is_list(Text), Text =/= []
    ],
    Line = [
        io_lib:format(" (line ~b)", [Number])
     || Number <- [proplists:get_value(line, Data)], is_integer(Number), Number > 0
    ],
    {Module, lists:flatten([atom_to_list(Function), Title, Line])}.
