%% The process handler of the tests: its state is a fun that does what the case is about. And what a case hears of it.
-module(weir_http_serving).
-behaviour(weir_http_process).

-export([start/4]).
-export([told/0, told/1, watch/1, watched/0, told_down/1, in_time/1, in_time/2]).

-export([serve/2]).

serve(Request, Fun) -> Fun(Request).

%% A listener whose route /serve is that fun, in a process.
start(Listener, Fun, RouteOptions, Options) ->
    {ok, _} = weir_http:start_listener(Listener, weir_http_client:options(Options#{ip => {127, 0, 0, 1}}), [
        {"/serve", ?MODULE, Fun, RouteOptions},
        {"/direct", weir_http_echo, {reply, 200, [], <<"direct">>}}
    ]),
    weir:get_port(Listener).

told(Message) ->
    receive
        Message -> ok
    after weir_test_wait:patience() -> error({not_told, Message, process_info(self(), messages)})
    end.

told() ->
    receive
        {told, What} -> What
    after weir_test_wait:patience() -> error(not_told)
    end.

%% Monitors a handler, which goes on when that is so: the signal may come later than what ends the process.
watch(Pid) ->
    Monitor = monitor(process, Pid),
    Pid ! {watched, self()},
    receive
        {watching, Pid} -> Monitor
    after weir_test_wait:patience() -> error(not_watched)
    end.

watched() ->
    receive {watched, Pid} -> Pid ! {watching, self()} end.

told_down(Monitor) ->
    receive {'DOWN', Monitor, process, _, _} -> ok after weir_test_wait:patience() -> error(lives) end.

%% For cases that need a client to be quicker than a time limit of the server, which a busy machine may not allow. The fun gets
%% the limit in milliseconds. It returns how long its client took until that did not matter any more, and the outcome. A client that
%% was not quick enough has not tried the case, and gets more time.
in_time(Fun) -> in_time(300, Fun).

in_time(Limit, Fun) ->
    case Fun(Limit) of
        {Took, _Outcome} when Took > Limit div 2 -> in_time(Limit * 4, Fun);
        {_Took, Outcome} -> Outcome
    end.
