%% @doc One connection of a load: its waiting requests, its requests on their way, and the state of its scenario.
%%
%% Pure functions. The engine passes in events with their time, and carries out the effects that are returned. All
%% rules of measuring are here, so that every engine measures the same:
%%
%% A request that is due waits for its turn on its connection, and its response time includes that wait. So the
%% requests that come due while a server stalls count against the server. Requests that were due before the measurement
%% window are not counted, but their errors are. A request that has no answer within the timeout, from when it was due,
%% is a `timeout'. If it was sent, its connection is closed, because its answer would be taken for that of another
%% request.
-module(weir_load_connection).

-include("weir_load_profile.hrl").

-export([new/1]).
-export([number/1]).
-export([opening/2]).
-export([is_late/3]).
-export([opened/4]).
-export([not_opened/4]).
-export([due/5]).
-export([ask/4]).
-export([received/5]).
-export([closed/4]).
-export([expire/4]).
-export([finish/2]).
-export([is_open/1]).
-export([pending/1]).

-export_type([connection/0, effect/0, step/0, asked/0]).

-import(weir_load_profile, [is_inside/2]).

%% `close' ends the connection because the scenario wants it, `abort' after an error, which is counted already.
-type effect() :: {send, iodata()} | close | abort.

%% `asked': a request was answered and the next one sent. The number of requests on their way is the same.
-type step() :: {[effect()], connection(), weir_load_sample:sample()}.
-type asked() :: {asked, Request :: iodata(), connection(), weir_load_sample:sample()}.

-record(request, {
    due :: integer(),
    %% The start of its service time, see weir_load_sample.
    begun :: integer(),
    sent :: integer(),
    first_byte :: integer() | undefined
}).

-record(connection, {
    number :: pos_integer(),
    scenario = closed :: closed | {open, weir_load_scenario:connection()},
    %% When its last connect began.
    begun = 0 :: integer(),
    %% Requests sent since it was opened.
    sent = 0 :: non_neg_integer(),
    %% Requests on their way. The oldest is in its own field, because most connections have only one.
    in_flight = 0 :: non_neg_integer(),
    oldest = none :: none | #request{},
    younger = queue:new() :: queue:queue(#request{}),
    %% The number of requests that are not sent yet, and when they were due.
    waiting = 0 :: non_neg_integer(),
    due = queue:new() :: queue:queue(integer())
}).

%% A connection of a closed loop whose only request has been on its way since `due'. It has only what changes with each
%% request, so that the rest is copied neither by updates nor by garbage collections.
-record(asked, {
    due :: integer(),
    sent :: pos_integer(),
    connection :: #connection{}
}).
-opaque connection() :: #connection{} | #asked{}.

%% @doc Returns a connection that is not open yet.
-spec new(Number :: pos_integer()) -> connection().
new(Number) -> #connection{number = Number}.

%% @doc Returns its number.
-spec number(connection()) -> pos_integer().
number(#asked{connection = #connection{number = Number}}) -> Number;
number(#connection{number = Number}) -> Number.

%% @doc Notes that its connect begins.
-spec opening(Now :: integer(), connection()) -> connection().
opening(Now, Connection) -> Connection#connection{begun = Now}.

%% @doc Returns whether its connect has timed out.
-spec is_late(Now :: integer(), connection(), weir_load_profile:profile()) -> boolean().
is_late(Now, #connection{scenario = closed, begun = Begun}, #profile{timeout = Timeout}) -> Begun < Now - Timeout;
is_late(_Now, _Connection, _Profile) -> false.

%% The full record, with the request that is on its way.
whole(#asked{due = Due, sent = Sent, connection = Connection}) ->
    Connection#connection{sent = Sent, in_flight = 1, oldest = #request{due = Due, begun = Due, sent = Due}}.

%% @doc Handles a connect that has succeeded.
-spec opened(Now :: integer(), connection(), weir_load_profile:profile(), weir_load_sample:sample()) -> step().
opened(Now, Connection, #profile{scenario = Scenario, config = Config} = Profile, Sample) ->
    #connection{number = Number, begun = Begun, due = Due} = Connection,
    Counted =
        case {Profile, queue:peek(Due)} of
            {#profile{arrivals = connection}, {value, First}} -> is_inside(First, Profile);
            _ -> true
        end,
    Timed =
        case Counted of
            true -> weir_load_sample:time(connect, Now - Begun, weir_load_sample:add(connected, 1, Sample));
            false -> Sample
        end,
    case Scenario:connect(Number, Config) of
        {ok, State} ->
            pump(Now, Connection#connection{scenario = {open, State}, sent = 0}, Profile, Timed, []);
        {send, Bytes, State} ->
            Sent = count_sent(0, Bytes, Now, Profile, Timed),
            pump(Now, Connection#connection{scenario = {open, State}, sent = 0}, Profile, Sent, [{send, Bytes}])
    end.

%% @doc Handles a connect that has failed. If each request has its own connection, the request has failed.
-spec not_opened(weir_load_scenario:error(), connection(), weir_load_profile:profile(), weir_load_sample:sample()) ->
    {connection(), weir_load_sample:sample()}.
not_opened(Reason, Connection, #profile{arrivals = connection}, Sample) ->
    {Connection#connection{waiting = 0, due = queue:new()}, weir_load_sample:error(Reason, Sample)};
not_opened(Reason, Connection, _Profile, Sample) ->
    {Connection, weir_load_sample:error(Reason, Sample)}.

%% @doc Adds a request that was due at a time.
-spec due(Due :: integer(), Now :: integer(), connection(), weir_load_profile:profile(), weir_load_sample:sample()) ->
    step().
due(Due, Now, #asked{} = Asked, Profile, Sample) ->
    due(Due, Now, whole(Asked), Profile, Sample);
due(Due, Now, Connection, Profile, Sample) ->
    Timed =
        case is_inside(Due, Profile) of
            true -> weir_load_sample:time(lag, Now - Due, Sample);
            false -> Sample
        end,
    arrived(Due, Now, Connection, Profile, Timed).

%% @doc Begins a closed loop: sends requests up to the depth. If each request has its own connection, adds the request
%% that the connection is opened for.
-spec ask(Now :: integer(), connection(), weir_load_profile:profile(), weir_load_sample:sample()) -> step().
ask(Now, Connection, #profile{arrivals = connection} = Profile, Sample) ->
    arrived(Now, Now, Connection, Profile, Sample);
ask(Now, Connection, Profile, Sample) ->
    pump(Now, Connection, Profile, Sample, []).

%% Sends a request at once if it need not wait.
arrived(
    Due,
    Now,
    #connection{scenario = {open, State}, waiting = 0, in_flight = InFlight} = Connection,
    #profile{depth = Depth} = Profile,
    Sample
) when InFlight < Depth ->
    {Effect, Sent, Counted} = send(Due, Now, State, Connection, Profile, Sample),
    {[Effect], Sent, Counted};
arrived(Due, Now, #connection{waiting = Waiting, due = Dues} = Connection, Profile, Sample) ->
    pump(Now, Connection#connection{waiting = Waiting + 1, due = queue:in(Due, Dues)}, Profile, Sample, []).

%% Sends waiting requests, or new ones of a closed loop, up to the depth.
pump(
    Now,
    #connection{scenario = {open, State}, waiting = Waiting, in_flight = InFlight} = Connection,
    #profile{depth = Depth} = Profile,
    Sample,
    Effects
) when Waiting > 0, InFlight < Depth ->
    {{value, Due}, Rest} = queue:out(Connection#connection.due),
    Turned = Connection#connection{waiting = Waiting - 1, due = Rest},
    {Effect, Sent, Counted} = send(Due, Now, State, Turned, Profile, Sample),
    pump(Now, Sent, Profile, Counted, [Effect | Effects]);
pump(
    Now,
    #connection{scenario = {open, State}, in_flight = InFlight} = Connection,
    #profile{asks = true, depth = Depth} = Profile,
    Sample,
    Effects
) when InFlight < Depth ->
    {Effect, Sent, Counted} = send(Now, Now, State, Connection, Profile, Sample),
    pump(Now, Sent, Profile, Counted, [Effect | Effects]);
pump(_Now, Connection, Profile, Sample, Effects) ->
    {lists:reverse(Effects), compact(Connection, Profile), Sample}.

%% The small record, if the only request was sent when it was due.
compact(
    #connection{
        in_flight = 1, waiting = 0, oldest = #request{due = Due, begun = Due, sent = Due, first_byte = undefined}
    } =
        Connection,
    #profile{asks = true, depth = 1}
) ->
    #asked{
        due = Due, sent = Connection#connection.sent, connection = Connection#connection{in_flight = 0, oldest = none}
    };
compact(Connection, _Profile) ->
    Connection.

send(Due, Now, State, Connection, #profile{request = NextRequest, arrivals = Arrivals} = Profile, Sample) ->
    #connection{sent = Sent, in_flight = InFlight, begun = ConnectBegun} = Connection,
    {ok, Bytes, Later} = NextRequest(Sent + 1, State),
    Begun =
        case Arrivals of
            connection -> ConnectBegun;
            _ -> Now
        end,
    Request = #request{due = Due, begun = Begun, sent = Now},
    Counted =
        case is_inside(Due, Profile) of
            true -> count_sent(1, Bytes, Now, Profile, Sample);
            false -> count_sent(0, Bytes, Now, Profile, Sample)
        end,
    Sending = Connection#connection{scenario = {open, Later}, sent = Sent + 1, in_flight = InFlight + 1},
    {{send, Bytes}, on_its_way(Request, InFlight, Sending), Counted}.

on_its_way(Request, 0, Connection) ->
    Connection#connection{oldest = Request};
on_its_way(Request, _InFlight, #connection{younger = Younger} = Connection) ->
    Connection#connection{younger = queue:in(Request, Younger)}.

%% @doc Handles received bytes.
-spec received(binary(), Now :: integer(), connection(), weir_load_profile:profile(), weir_load_sample:sample()) ->
    step() | asked().
received(
    Data,
    Now,
    #asked{due = Due, sent = Sent, connection = #connection{scenario = {open, State} = Open} = Connection} = Asked,
    #profile{asks = true, response = Response, request = NextRequest, from = From, to = To} = Profile,
    Sample
) when Due >= From, Now < To ->
    case Response(Data, State) of
        {ok, [answered], Answered} ->
            {ok, Bytes, Later} = NextRequest(Sent + 1, Answered),
            Kept =
                case {open, Later} of
                    Open -> Connection;
                    Changed -> Connection#connection{scenario = Changed}
                end,
            Counted = weir_load_sample:asked(Now - Due, byte_size(Data), iolist_size(Bytes), Sample),
            {asked, Bytes, #asked{due = Now, sent = Sent + 1, connection = Kept}, Counted};
        Result ->
            responded(Result, Data, Now, whole(Asked), Profile, Sample)
    end;
received(Data, Now, #asked{} = Asked, Profile, Sample) ->
    received(Data, Now, whole(Asked), Profile, Sample);
received(
    Data, Now, #connection{scenario = {open, State}} = Connection, #profile{response = Response} = Profile, Sample
) ->
    responded(Response(Data, State), Data, Now, Connection, Profile, Sample).

responded(Result, Data, Now, Connection, Profile, Sample) ->
    Counted =
        case is_inside(Now, Profile) of
            true -> weir_load_sample:add(bytes_received, byte_size(Data), Sample);
            false -> Sample
        end,
    case Result of
        {ok, [answered | _] = Events, Later} ->
            events(Events, Now, Connection#connection{scenario = {open, Later}}, Profile, Counted, []);
        {ok, Events, Later} ->
            Noted = note_first_byte(Now, Connection#connection{scenario = {open, Later}}),
            events(Events, Now, Noted, Profile, Counted, []);
        {error, Kind} ->
            fail(Kind, Connection, Profile, Counted, [])
    end.

%% The first byte of the answer to the oldest request has come.
note_first_byte(Now, #connection{oldest = #request{first_byte = undefined} = Request} = Connection) ->
    Connection#connection{oldest = Request#request{first_byte = Now}};
note_first_byte(_Now, Connection) ->
    Connection.

events([], Now, Connection, Profile, Sample, Effects) ->
    pump(Now, Connection, Profile, Sample, Effects);
events([answered | Events], Now, #connection{oldest = Oldest} = Connection, Profile, Sample, Effects) ->
    case Oldest of
        #request{} ->
            Answered = count_answer(Oldest, Now, Profile, Sample),
            Later = without_oldest(Connection),
            case Profile of
                #profile{arrivals = connection} -> ended(close, Later, Answered, Effects);
                _ -> events(Events, Now, Later, Profile, Answered, Effects)
            end;
        none ->
            fail(unexpected_reply, Connection, Profile, Sample, Effects)
    end;
events([{failed, Kind} | _], _Now, #connection{oldest = none} = Connection, Profile, Sample, Effects) ->
    fail(Kind, Connection, Profile, Sample, Effects);
events([{failed, Kind} | Events], Now, Connection, Profile, Sample, Effects) ->
    Later = without_oldest(Connection),
    Noted = weir_load_sample:error(Kind, Sample),
    case Profile of
        #profile{arrivals = connection} -> ended(abort, Later, Noted, Effects);
        _ -> events(Events, Now, Later, Profile, Noted, Effects)
    end;
events([pushed | Events], Now, Connection, Profile, Sample, Effects) ->
    Counted =
        case is_inside(Now, Profile) of
            true -> weir_load_sample:add(pushed, 1, Sample);
            false -> Sample
        end,
    events(Events, Now, Connection, Profile, Counted, Effects);
events([{pushed, Took} | Events], Now, Connection, Profile, Sample, Effects) ->
    Timed =
        case is_inside(Now, Profile) of
            true -> weir_load_sample:time(push, Took, Sample);
            false -> Sample
        end,
    events([pushed | Events], Now, Connection, Profile, Timed, Effects);
events([{send, Bytes} | Events], Now, Connection, Profile, Sample, Effects) ->
    events(Events, Now, Connection, Profile, count_sent(0, Bytes, Now, Profile, Sample), [{send, Bytes} | Effects]);
events([close | _], _Now, #connection{in_flight = 0} = Connection, _Profile, Sample, Effects) ->
    ended(close, Connection, Sample, Effects);
events([close | _], _Now, Connection, Profile, Sample, Effects) ->
    fail(closed, Connection, Profile, Sample, Effects).

count_answer(#request{due = Due, begun = Begun, sent = Sent, first_byte = FirstByte}, Now, Profile, Sample) ->
    case is_inside(Due, Profile) of
        true when FirstByte =:= undefined -> weir_load_sample:answered(Now - Due, Now - Begun, Now - Sent, Sample);
        true -> weir_load_sample:answered(Now - Due, Now - Begun, FirstByte - Sent, Sample);
        false -> Sample
    end.

without_oldest(#connection{in_flight = 1} = Connection) ->
    Connection#connection{in_flight = 0, oldest = none};
without_oldest(#connection{in_flight = InFlight, younger = Younger} = Connection) ->
    {{value, Next}, Rest} = queue:out(Younger),
    Connection#connection{in_flight = InFlight - 1, oldest = Next, younger = Rest}.

%% An error that ends the connection. Counted once for each request on its way, or once if there is none.
fail(Kind, #connection{in_flight = InFlight} = Connection, _Profile, Sample, Effects) ->
    ended(abort, Connection, errors(max(1, InFlight), Kind, Sample), Effects).

errors(0, _Kind, Sample) -> Sample;
errors(Count, Kind, Sample) -> errors(Count - 1, Kind, weir_load_sample:error(Kind, Sample)).

ended(How, #connection{scenario = {open, _}} = Connection, Sample, Effects) ->
    {lists:reverse(Effects, [How]), Connection, Sample}.

%% @doc Handles a connection that was closed by the server or the system.
-spec closed(weir_load_scenario:error(), connection(), weir_load_profile:profile(), weir_load_sample:sample()) ->
    {connection(), weir_load_sample:sample()}.
closed(Reason, #asked{} = Asked, Profile, Sample) ->
    closed(Reason, whole(Asked), Profile, Sample);
closed(closed, #connection{in_flight = 0} = Connection, #profile{held = false}, Sample) ->
    {Connection, Sample};
closed(Reason, #connection{in_flight = InFlight} = Connection, _Profile, Sample) ->
    {Connection, errors(max(1, InFlight), Reason, Sample)}.

%% @doc Fails the requests that have timed out.
-spec expire(Now :: integer(), connection(), weir_load_profile:profile(), weir_load_sample:sample()) -> step().
expire(Now, #asked{due = Due} = Asked, #profile{timeout = Timeout}, Sample) when Due >= Now - Timeout ->
    {[], Asked, Sample};
expire(Now, #asked{} = Asked, Profile, Sample) ->
    expire(Now, whole(Asked), Profile, Sample);
expire(Now, #connection{oldest = Oldest} = Connection, #profile{timeout = Timeout} = Profile, Sample) ->
    Latest = Now - Timeout,
    {Kept, Noted} = expire_waiting(Latest, Connection, Sample),
    case Oldest of
        #request{due = Due} when Due < Latest -> fail(timeout, Kept, Profile, Noted, []);
        _ -> {[], Kept, Noted}
    end.

expire_waiting(Latest, #connection{waiting = Waiting, due = Dues} = Connection, Sample) ->
    case queue:peek(Dues) of
        {value, Due} when Due < Latest ->
            Kept = Connection#connection{waiting = Waiting - 1, due = queue:drop(Dues)},
            expire_waiting(Latest, Kept, weir_load_sample:error(timeout, Sample));
        _ ->
            {Connection, Sample}
    end.

%% @doc Ends the connection: calls the scenario's `done' and forgets the requests on their way. Requests that were not
%% sent wait for the connection to be opened again.
-spec finish(connection(), weir_load_profile:profile()) -> connection().
finish(#asked{} = Asked, Profile) ->
    finish(whole(Asked), Profile);
finish(#connection{scenario = closed} = Connection, _Profile) ->
    Connection;
finish(#connection{scenario = {open, State}} = Connection, #profile{scenario = Scenario}) ->
    ok = Scenario:done(State),
    Connection#connection{scenario = closed, in_flight = 0, oldest = none, younger = queue:new()}.

%% @doc Returns whether it is open.
-spec is_open(connection()) -> boolean().
is_open(#asked{}) -> true;
is_open(#connection{scenario = Scenario}) -> Scenario =/= closed.

%% @doc Returns the number of requests that wait for their turn or for an answer.
-spec pending(connection()) -> non_neg_integer().
pending(#asked{}) -> 1;
pending(#connection{waiting = Waiting, in_flight = InFlight}) -> Waiting + InFlight.

count_sent(Requests, Bytes, Now, Profile, Sample) ->
    case is_inside(Now, Profile) of
        true -> weir_load_sample:sent(Requests, iolist_size(Bytes), Sample);
        false when Requests =:= 0 -> Sample;
        false -> weir_load_sample:sent(Requests, 0, Sample)
    end.
