%% Example servers of `bin/weir run' on one node for a whole suite, and their clients. A separate program for each
%% would cost a second of CPU time; weir_cli_SUITE tests the program itself. The node ends with the virtual machine of
%% the tests.
-module(weir_cli_examples).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").

-export([start_node/1, stop_node/1]).
-export([run/2, serve/3, stop/1]).
-export([pid/1]).
-export([backend/1]).
-export([in_every_mode/4]).
%% On the node.
-export([begin_run/1, line/1, end_run/1, outcome/1]).

start_node(Config) ->
    Started = peer:start(#{
        connection => standard_io, wait_boot => weir_test_wait:patience(), args => ["-pa" | code:get_path()]
    }),
    [{examples, element(2, Started)} | Config].

stop_node(Config) -> peer:stop(?config(examples, Config)).

%% Like weir_cli_program:run/2, for a command that ends without a signal.
run(Config, Arguments) ->
    Run = call(Config, begin_run, [Arguments]),
    weir_cli_program:told(call(Config, outcome, [Run])).

serve(Config, Example, Options) ->
    Run = call(Config, begin_run, [["run", atom_to_list(Example)] ++ backend(Config) ++ Options]),
    <<"ready ", Port/binary>> = call(Config, line, [Run]),
    <<"pid ", Pid/binary>> = call(Config, line, [Run]),
    #{node => ?config(examples, Config), run => Run, port => binary_to_integer(Port), pid => Pid}.

%% Stops a server as SIGTERM does.
stop(#{node := Node, run := Run}) ->
    {Status, _} = weir_cli_program:told(peer:call(Node, ?MODULE, end_run, [Run], weir_test_wait:patience())),
    Status.

pid(#{pid := Pid}) -> Pid.

backend(Config) ->
    case ?config(backend, Config) of
        undefined -> [];
        Backend -> ["--backend", atom_to_list(Backend)]
    end.

%% Runs a client on two connections of an example, for each mode of `active'. The modes have a server each and run at
%% the same time.
in_every_mode(Config, Example, Options, Client) ->
    Serve = fun(Mode) ->
        #{port := Port} = Program = serve(Config, Example, ["--active", Mode | Options]),
        Sockets = [begin {ok, Socket} = weir_cli_test:connect(Port), Socket end || _ <- [1, 2]],
        [_, _] = [Client(Socket) || Socket <- Sockets],
        0 = stop(Program),
        exit({shutdown, served})
    end,
    Modes = [{Mode, spawn_monitor(fun() -> Serve(Mode) end)} || Mode <- ["once", "true", "2", "false"]],
    [
        receive {'DOWN', Monitor, process, Pid, Reason} -> ?assertEqual({Mode, {shutdown, served}}, {Mode, Reason}) end
     || {Mode, {Pid, Monitor}} <- Modes
    ].

call(Config, Function, Arguments) ->
    peer:call(?config(examples, Config), ?MODULE, Function, Arguments, weir_test_wait:patience()).

%%% On the node.

%% A process that collects the output and the result of a command.
begin_run(Arguments) ->
    spawn(fun() ->
        Gatherer = self(),
        {Pid, Monitor} = spawn_monitor(fun() ->
            true = group_leader(Gatherer, self()),
            exit({outcome, weir_cli:run(Arguments)})
        end),
        gather(#{pid => Pid, monitor => Monitor, text => <<>>, lines => [], outcome => none})
    end).

line(Run) -> ask(Run, line).

end_run(Run) ->
    Run ! stop,
    outcome(Run).

outcome(Run) -> ask(Run, outcome).

ask(Run, Question) ->
    Monitor = monitor(process, Run, [{alias, reply_demonitor}]),
    Run ! {Question, Monitor},
    receive
        {Monitor, Answer} -> Answer;
        {'DOWN', Monitor, process, Run, Reason} -> error(Reason)
    end.

%% A question waits until it can be answered.
gather(#{pid := Pid, monitor := Monitor, text := Text, lines := Lines, outcome := Outcome} = State) ->
    receive
        {io_request, From, Reference, Request} ->
            [Rest | Complete] = lists:reverse(
                binary:split(<<Text/binary, (text(Request))/binary>>, <<"\n">>, [global])
            ),
            From ! {io_reply, Reference, ok},
            gather(State#{text := Rest, lines := Lines ++ lists:reverse(Complete)});
        {'DOWN', Monitor, process, Pid, Reason} ->
            gather(State#{outcome := Reason});
        {line, From} when Lines =/= [] ->
            From ! {From, hd(Lines)},
            gather(State#{lines := tl(Lines)});
        {line, From} when Outcome =/= none ->
            exit({no_line, From, Outcome});
        stop ->
            Pid ! stop,
            gather(State);
        {outcome, From} when Outcome =/= none ->
            From ! {From, element(2, {outcome, _} = Outcome)}
    end.

text({put_chars, Encoding, Module, Function, Arguments}) ->
    text({put_chars, Encoding, apply(Module, Function, Arguments)});
text({put_chars, Encoding, Text}) ->
    unicode:characters_to_binary(Text, Encoding).
