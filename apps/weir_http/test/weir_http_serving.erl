%% A process handler for the tests, whose state is a fun, and functions to wait for its messages.
-module(weir_http_serving).
-behaviour(weir_http_process).

-export([start/4]).
-export([told/0, told/1, watch/1, watched/0, told_down/1, in_time/1, in_time/2]).

-export([serve/2]).

serve(Request, Fun) -> Fun(Request).

%% Starts a listener whose route /serve runs that fun in a process.
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

%% Monitors a handler, which waits for it: otherwise it could end before the monitor is set.
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

%% For cases whose client must be faster than a timeout of the server, which a busy machine may not allow. The fun gets
%% the limit in milliseconds. It returns how long its client took for the critical part, and the outcome. If that was
%% too long, the outcome proves nothing, and the fun is called again with a longer limit.
in_time(Fun) -> in_time(300, Fun).

in_time(Limit, Fun) ->
    case Fun(Limit) of
        {Took, _Outcome} when Took > Limit div 2 -> in_time(Limit * 4, Fun);
        {_Took, Outcome} -> Outcome
    end.
