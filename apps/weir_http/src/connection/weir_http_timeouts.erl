%% @private
%% @doc Timeouts of a connection in each of its states, counted in ticks of its reactor.
-module(weir_http_timeouts).

-export([begin_tick/1]).
-export([tick/2]).
-export([woken/1]).
-export([ticks_until/2]).
-export([staggered/2]).
-export([is_draining/1]).
-export([begin_drain/2]).
-export([is_dismissed/1]).

-include("weir_http.hrl").
-include("weir_http_states.hrl").

%% Ticks that the client gets to read the last response before the connection is closed.
-define(LINGER_TICKS, 2).

%% More than the longest sleep that a reactor allows.
-define(LONG_TICKS, 1000).

%% @doc Returns which connections a tick visits. During a drain it visits all, at each tick until they are closed.
-spec begin_tick(Key :: term()) -> all | due.
begin_tick(Key) ->
    case persistent_term:get(Key, forgotten) of
        forgotten ->
            due;
        Http ->
            case is_draining(Http) of
                true -> all;
                false -> due
            end
    end.

%% @doc Advances a connection by a tick. `late': the client gets a 408, and the connection is closed.
-spec tick(weir_http_socket:socket(), State) ->
    {ok, State} | {sleep, pos_integer(), State} | {close, State} | {late, #http{}}.
tick(Socket, Idle = #idle{key = Key, quiet = Quiet, until = Until}) ->
    Http = #http{idle_ticks = Most, tick = Tick} = persistent_term:get(Key),
    IsOver = Quiet > 0 andalso is_draining(Http),
    case Until of
        awake when Quiet + 1 >= Most; IsOver -> quiet(Socket, Idle);
        awake when Quiet =:= 0 -> {ok, Idle#idle{quiet = 1}};
        %% No request for a whole tick.
        awake when Most =:= infinity -> asleep(infinity, Idle, Http);
        awake -> asleep(now_ms() + (Most - Quiet - 1) * Tick, Idle#idle{quiet = Quiet + 1}, Http);
        _ when IsOver -> quiet(Socket, Idle);
        %% Ticks can be a little early or late.
        _ ->
            case now_ms() + Tick div 2 < Until of
                true -> asleep(Until, Idle, Http);
                false -> quiet(Socket, Idle)
            end
    end;
tick(Socket, Head = #head{bytes = Bytes, ticks = Ticks, idle = #idle{key = Key}}) ->
    Http = #http{header_ticks = Most} = persistent_term:get(Key),
    IsDraining = Bytes =:= <<>> andalso Ticks > 0 andalso is_draining(Http),
    case Ticks + 1 =< Most of
        true when IsDraining -> {close, Head};
        true -> {ok, Head#head{ticks = Ticks + 1}};
        %% A client that has sent nothing gets no response.
        false when Bytes =:= <<>> -> given_up(Socket, Head, Head#head.idle, Http);
        false -> {late, Http}
    end;
tick(_Socket, Body = #body{ticks = Ticks, body = Coming, idle = #idle{key = Key}}) ->
    Http = persistent_term:get(Key),
    case may_take(Ticks + 1, Coming, Http) of
        true -> {ok, Body#body{ticks = Ticks + 1}};
        false -> {late, Http}
    end;
tick(Socket, Paused = #paused{idle = Idle}) ->
    Http = #http{idle_ticks = Most} = persistent_term:get(Idle#idle.key),
    case taking(Socket, Idle#idle.quiet, Idle#idle.pending, Most) of
        {Quiet, Pending} -> {ok, Paused#paused{idle = Idle#idle{quiet = Quiet, pending = Pending}}};
        nothing -> given_up(Socket, Paused, Idle, Http)
    end;
tick(Socket, Busy = #busy{idle = #idle{key = Key}}) ->
    Http = #http{idle_ticks = Most} = persistent_term:get(Key),
    case {taking(Socket, Busy#busy.quiet, Busy#busy.pending, Most), giving(Busy, Http)} of
        {nothing, _} -> given_up(Socket, Busy, Busy#busy.idle, Http);
        {_, nothing} -> given_up(Socket, Busy, Busy#busy.idle, Http);
        {{Quiet, Pending}, Ticks} -> {ok, Busy#busy{quiet = Quiet, pending = Pending, ticks = Ticks}}
    end;
tick(_Socket, Closing = #closing{ticks = Ticks}) when Ticks >= ?LINGER_TICKS ->
    {close, Closing};
tick(_Socket, Closing = #closing{ticks = Ticks}) ->
    {ok, Closing#closing{ticks = Ticks + 1}}.

given_up(Socket, State, #idle{client = Client}, Http = #http{counters = Counters}) ->
    ok = weir_http_counters:add(Counters, timeouts),
    ok = weir_http_observation:timeout(Socket, Client, Http),
    {close, State}.

%% The idle timeout has passed. A client that still reads a response gets another period, as long as it reads some in
%% each.
quiet(Socket, Idle = #idle{pending = Before}) ->
    case weir_http_socket:pending(Socket) of
        0 -> {close, Idle};
        Same when Before > 0, Same >= Before -> {close, Idle};
        Fewer -> {ok, Idle#idle{quiet = 0, pending = Fewer, until = awake}}
    end.

asleep(Until, Idle, Http) -> {sleep, ticks_until(Until, Http), Idle#idle{until = Until}}.

%% @doc Wakes an idle connection that received data.
-spec woken(#idle{}) -> #idle{}.
woken(Idle = #idle{until = infinity}) ->
    Idle#idle{until = awake};
woken(Idle = #idle{key = Key, until = Until}) ->
    #http{idle_ticks = Most, tick = Tick} = persistent_term:get(Key),
    Idle#idle{quiet = max(1, Most - 1 - max(0, Until - now_ms()) div Tick), until = awake}.

%% @doc Returns the number of ticks until a time, at least 1.
-spec ticks_until(integer() | infinity, #http{}) -> pos_integer().
ticks_until(Until, #http{tick = Tick} = Http) ->
    case is_draining(Http) of
        true -> 1;
        false when Until =:= infinity -> ?LONG_TICKS;
        false -> max(1, (Until - now_ms() + Tick - 1) div Tick)
    end.

%% @doc Shortens a time by up to a quarter, always by the same amount for a connection. Connections that began
%% together, as after a restart, then do not stay in step.
-spec staggered(weir_http_socket:socket(), timeout()) -> timeout().
staggered(_Socket, infinity) -> infinity;
staggered(Socket, Time) -> Time - erlang:phash2(Socket, Time div 4 + 1).

now_ms() -> erlang:monotonic_time(millisecond).

%% Returns the ticks since the client last read something while output waits, and the bytes waiting; `nothing' after
%% Most ticks.
taking(Socket, Quiet, Before, Most) ->
    case weir_http_socket:pending(Socket) of
        Pending when Pending =:= 0; Pending =/= Before -> {0, Pending};
        Same when Quiet + 1 < Most -> {Quiet + 1, Same};
        _ -> nothing
    end.

%% Returns the ticks that the process has waited for more of the body; `nothing' if that is too long.
giving(#busy{is_reading = true, ticks = Ticks, body = Body}, Http) ->
    case may_take(Ticks + 1, Body, Http) of
        true -> Ticks + 1;
        false -> nothing
    end;
giving(#busy{ticks = Ticks}, _Http) ->
    Ticks.

may_take(_Ticks, _Body, #http{body_ticks = infinity}) ->
    true;
may_take(Ticks, Body, #http{body_ticks = Most, body_bytes = Bytes}) ->
    Ticks =< Most + weir_http_body:received(Body) div Bytes.

%% @doc Whether the listener is draining.
-spec is_draining(#http{}) -> boolean().
is_draining(#http{draining = Draining}) -> atomics:get(Draining, 1) =/= 0.

%% @doc Begins a drain. Lasting connections end within Spread milliseconds.
-spec begin_drain(Spread :: non_neg_integer(), #http{}) -> ok.
begin_drain(Spread, #http{draining = Draining}) ->
    ok = atomics:put(Draining, 2, now_ms() + Spread),
    atomics:put(Draining, 1, 1).

%% @doc Whether a stream, a WebSocket or a held request ends with this tick because its listener drains. Each tick ends
%% one in N of those that remain, where N is the number of ticks left. So each tick ends about the same number, without
%% state per connection.
-spec is_dismissed(#http{}) -> boolean().
is_dismissed(#http{draining = Draining, tick = Tick} = Http) ->
    is_draining(Http) andalso
        case atomics:get(Draining, 2) - now_ms() of
            Left when Left > 0 -> rand:uniform(Left + Tick) =< Tick;
            _ -> true
        end.
