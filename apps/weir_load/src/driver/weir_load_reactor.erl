%% @private
%% @doc Many connections of one process, with their writes and events in one native call, as in {@link weir_reactor}.
%%
%% A driver sends by a schedule, not only in answer to events, and sums up over all connections. The callbacks of
%% {@link weir_reactor} handle one connection each, so this module uses the same native calls one level below, with the
%% state in the hands of the process.
%%
%% An alarm wakes the process for timed actions, because timers of the VM have a resolution of milliseconds.
-module(weir_load_reactor).

-export([start/0]).
-export([connect/4]).
-export([react/2]).
-export([rest/3]).
-export([message/2]).

-export_type([reactor/0, event/0, write/0]).

-record(reactor, {
    pollset :: weir_nif:pollset(),
    token :: non_neg_integer(),
    %% Since when there was nothing to read or write.
    idle_since = busy :: busy | integer(),
    alarm :: weir_load_nif:alarm(),
    %% When the alarm goes off.
    alarm_at = none :: none | integer()
}).
-opaque reactor() :: #reactor{}.

-type event() :: weir_reactor_process:event().
-type write() :: weir_reactor_process:write().

%% In effect no limit: the depth of the load limits the send queue.
-define(MAX_SEND_QUEUE, 1 bsl 40).

%% Nanoseconds that it spins before it sleeps. A busy server answers sooner than that, and sleeping and being woken
%% costs the VM and its poll thread several times as much as a request.
-define(SPIN, 20_000).

%% Nanoseconds. A shorter wait is not worth an alarm.
-define(SHORT, 20_000).

%% @doc Makes the calling process a reactor. Its connections end with it.
-spec start() -> {ok, reactor()} | {error, term()}.
start() ->
    case weir_nif:acquire() of
        {ok, {Pollset, Token}} ->
            ok = weir_nif:reactor_begin(Pollset, weir_pollsets:here(), ?MAX_SEND_QUEUE),
            {ok, #reactor{pollset = Pollset, token = Token, alarm = weir_load_nif:alarm_start()}};
        {error, _} = Error ->
            Error
    end.

%% @doc Starts to connect, with options of `gen_tcp:connect/3'. The event `{connected, Handle}' or
%% `{refused, Handle, Reason}' reports the result.
-spec connect(inet:ip_address(), inet:port_number(), [gen_tcp:connect_option()], reactor()) ->
    {ok, weir_nif:handle()} | {error, inet:posix()}.
connect(Address, Port, Options, #reactor{pollset = Pollset}) ->
    case weir_open:unconnected(Address, Port, Options) of
        {ok, Handle, Native} ->
            case weir_nif:reactor_connect(Pollset, Handle, Native) of
                ok -> {ok, Handle};
                {error, _} = Error -> Error
            end;
        {error, _} = Error ->
            Error
    end.

%% @doc Makes the writes, which are in reverse order, and returns the events of ready connections.
-spec react([write()], reactor()) -> {[event()], reactor()}.
react([], #reactor{pollset = Pollset, token = Token} = Reactor) ->
    case weir_nif:react(Pollset, Token, []) of
        {Events, 0, _Round} -> {Events, Reactor};
        {Events, _Found, _Round} -> {Events, Reactor#reactor{idle_since = busy}}
    end;
react(Writes, #reactor{pollset = Pollset, token = Token} = Reactor) ->
    {Events, _Found, _Round} = weir_nif:react(Pollset, Token, Writes),
    {Events, Reactor#reactor{idle_since = busy}}.

%% @doc Waits when there is nothing to write. Returns when it is time for the next {@link react/2}, or with a message
%% that {@link message/2} must see first. `At' is the time of the next timed action.
-spec rest(At :: integer() | never, Now :: integer(), reactor()) -> {ready, reactor()} | {message, term(), reactor()}.
rest(_At, Now, #reactor{idle_since = busy} = Reactor) ->
    erlang:yield(),
    {ready, Reactor#reactor{idle_since = Now}};
rest(At, Now, #reactor{idle_since = Since} = Reactor) when
    Now - Since > ?SPIN, (At =:= never orelse At - Now > ?SHORT)
->
    sleep(set_alarm(At, Now, Reactor));
rest(_At, _Now, Reactor) ->
    erlang:yield(),
    {ready, Reactor}.

set_alarm(At, _Now, #reactor{alarm_at = Set} = Reactor) when At =:= never; At =:= Set ->
    Reactor;
set_alarm(At, Now, #reactor{alarm = Alarm} = Reactor) ->
    ok = weir_load_nif:alarm_set(Alarm, At - Now),
    Reactor#reactor{alarm_at = At}.

sleep(#reactor{pollset = Pollset, token = Token} = Reactor) ->
    case weir_nif:sleep(Pollset, Token, false) of
        asleep ->
            receive
                Message -> {message, Message, Reactor}
            end;
        busy ->
            erlang:yield(),
            {ready, Reactor}
    end.

%% @doc Handles a message. Returns `other' if it is not for the reactor.
-spec message(term(), reactor()) -> {ok, reactor()} | other.
message(weir_wake, Reactor) -> {ok, Reactor};
message(weir_load_alarm, Reactor) -> {ok, Reactor#reactor{alarm_at = none}};
message(_Message, _Reactor) -> other.
