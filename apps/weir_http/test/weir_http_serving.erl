%% The process handler of the tests: its state is a fun that does what the case is about. And what a case hears of it.
-module(weir_http_serving).
-behaviour(weir_http_process).

-export([start/4]).
-export([told/0, told/1, watch/1, watched/0, told_down/1, until/1]).

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
    after 10000 -> error({not_told, Message, process_info(self(), messages)})
    end.

told() ->
    receive
        {told, What} -> What
    after 10000 -> error(not_told)
    end.

%% Monitors a handler, which goes on when that is so: the signal may come later than what ends the process.
watch(Pid) ->
    Monitor = monitor(process, Pid),
    Pid ! {watched, self()},
    receive
        {watching, Pid} -> Monitor
    after 10000 -> error(not_watched)
    end.

watched() ->
    receive {watched, Pid} -> Pid ! {watching, self()} end.

told_down(Monitor) ->
    receive {'DOWN', Monitor, process, _, _} -> ok after 10000 -> error(lives) end.

%% Says which condition it was, where a timetrap would not.
until(Condition) -> until(Condition, erlang:monotonic_time(millisecond) + 30000).

until(Condition, End) ->
    case Condition() of
        true ->
            ok;
        false ->
            erlang:monotonic_time(millisecond) < End orelse error({never, Condition}),
            timer:sleep(10),
            until(Condition, End)
    end.
