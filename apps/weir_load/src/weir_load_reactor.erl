%% @private
%% @doc Many connections of one process: writes and events in one native call, as {@link weir_reactor} does it, for a
%% process that has more to do than to answer.
%%
%% A driver sends by a schedule, over connections that have said nothing, and sums up over all of them. The callbacks of
%% a reactor are about one connection each, so this is the step below: the same native calls, sockets and events, as a
%% value in the hands of the process.
%%
%% For what is due at a time there is an alarm, since timers of the VM know milliseconds only.
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
    %% Since when there has been nothing to read or write.
    idle_since = busy :: busy | integer(),
    %% Whether the VM watches the pollset for a sleep that something else has ended.
    alarm :: weir_load_nif:alarm(),
    %% For when it is set.
    alarm_at = none :: none | integer()
}).
-opaque reactor() :: #reactor{}.

-type event() :: weir_reactor_process:event().
-type write() :: weir_reactor_process:write().

%% What waits on a connection is bounded by the load, as deep as it goes.
-define(MAX_SEND_QUEUE, 1 bsl 40).

%% How many nanoseconds it spins before it sleeps. A server that is busy answers sooner, and to sleep and be woken takes the VM
%% and its poll thread several times what a request takes.
-define(SPIN, 20_000).

%% A wait so short is not worth an alarm.
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

%% @doc Begins a connection, by the options of `gen_tcp:connect/3'. The event `{connected, Handle}' or
%% `{refused, Handle, Reason}' tells what came of it.
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

%% @doc Makes writes, the last of which comes first, and takes the events of connections that are ready.
-spec react([write()], reactor()) -> {[event()], reactor()}.
react([], #reactor{pollset = Pollset, token = Token} = Reactor) ->
    case weir_nif:react(Pollset, Token, []) of
        {Events, 0, _Round} -> {Events, Reactor};
        {Events, _Found, _Round} -> {Events, Reactor#reactor{idle_since = busy}}
    end;
react(Writes, #reactor{pollset = Pollset, token = Token} = Reactor) ->
    {Events, _Found, _Round} = weir_nif:react(Pollset, Token, Writes),
    {Events, Reactor#reactor{idle_since = busy}}.

%% @doc After a call without writes to come: returns when it is time for the next, or with a message for
%% {@link message/2} to look at first. `At' is when there is something to do whatever happens.
-spec rest(At :: integer() | never, Now :: integer(), reactor()) -> {ready, reactor()} | {message, term(), reactor()}.
rest(_At, Now, #reactor{idle_since = busy} = Reactor) ->
    erlang:yield(),
    {ready, Reactor#reactor{idle_since = Now}};
rest(At, Now, #reactor{idle_since = Since} = Reactor) when Now - Since > ?SPIN, (At =:= never orelse At - Now > ?SHORT) ->
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

%% @doc Looks at a message: `other' if it is not for the reactor.
-spec message(term(), reactor()) -> {ok, reactor()} | other.
message(weir_wake, Reactor) -> {ok, Reactor};
message(weir_load_alarm, Reactor) -> {ok, Reactor#reactor{alarm_at = none}};
message(_Message, _Reactor) -> other.
