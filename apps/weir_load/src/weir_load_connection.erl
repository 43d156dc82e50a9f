%% @doc One connection of a load: what is due on it, what is on its way, and what its scenario makes of the bytes.
%%
%% A value. Engines hand in what happens, with the time, and carry out the effects that come back. All rules of
%% measuring are here, so that every engine measures the same:
%%
%% A request that is due waits its turn on its connection, and its response time counts that wait: a server that stalls
%% is not spared the requests that would have come meanwhile. What was due before the window of measurement is not
%% counted, but for its errors: a server that loses connections in the warm-up has lost them. A request without an
%% answer in time, counted from when it was due, is a `timeout'; if it was sent, its connection ends, since its answer
%% would be taken for another's.
-module(weir_load_connection).

-export([new/1]).
-export([opening/2]).
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
-export([room/2]).

-export_type([connection/0, profile/0, effect/0, step/0]).

%% What the connections of a driver have in common. `depth' is how many requests may be on their way. Times are
%% nanoseconds of the driver's monotonic clock; the window is `undefined' until it is known.
-type profile() :: #{
    scenario := module(),
    config := weir_load_scenario:config(),
    arrivals := request | connection | none,
    held := boolean(),
    depth := pos_integer(),
    timeout := pos_integer(),
    window := {From :: integer(), To :: integer()} | undefined
}.

%% `close' ends the connection as the scenario wants it, `abort' after an error. The connection counts as closed
%% already.
-type effect() :: {send, iodata()} | close | abort.

-type step() :: {[effect()], connection(), weir_load_sample:sample()}.

-record(request, {
    due :: integer(),
    %% When work on it began: see weir_load_sample.
    begun :: integer(),
    sent :: integer(),
    first_byte :: integer() | undefined
}).

-record(connection, {
    number :: pos_integer(),
    scenario = closed :: closed | {open, weir_load_scenario:connection()},
    %% When its last connect began.
    begun = 0 :: integer(),
    %% When requests were due that are not sent yet.
    waiting = queue:new() :: queue:queue(integer()),
    in_flight = queue:new() :: queue:queue(#request{}),
    waiting_length = 0 :: non_neg_integer(),
    in_flight_length = 0 :: non_neg_integer(),
    %% Since it stands.
    sent = 0 :: non_neg_integer()
}).
-opaque connection() :: #connection{}.

%% @doc A connection that is not open yet.
-spec new(Number :: pos_integer()) -> connection().
new(Number) -> #connection{number = Number}.

%% @doc Its connect begins.
-spec opening(Now :: integer(), connection()) -> connection().
opening(Now, Connection) -> Connection#connection{begun = Now}.

%% @doc It stands now.
-spec opened(Now :: integer(), connection(), profile(), weir_load_sample:sample()) -> step().
opened(Now, Connection, #{scenario := Scenario, config := Config} = Profile, Sample) ->
    #connection{number = Number, begun = Begun, waiting = Waiting} = Connection,
    Counted =
        case {Profile, queue:peek(Waiting)} of
            {#{arrivals := connection}, {value, Due}} -> is_inside(Due, Profile);
            _ -> true
        end,
    Timed = time_if(Counted, connect, Now - Begun, count_if(Counted, connected, 1, Sample)),
    case Scenario:connect(Number, Config) of
        {ok, State} ->
            pump(Now, Connection#connection{scenario = {open, State}, sent = 0}, Profile, Timed, []);
        {send, Bytes, State} ->
            Sent = count_bytes(bytes_sent, Bytes, Now, Profile, Timed),
            pump(Now, Connection#connection{scenario = {open, State}, sent = 0}, Profile, Sent, [{send, Bytes}])
    end.

%% @doc It could not be opened. Where each request has a connection of its own, the request has failed.
-spec not_opened(weir_load_scenario:error(), connection(), profile(), weir_load_sample:sample()) ->
    {connection(), weir_load_sample:sample()}.
not_opened(Reason, Connection, #{arrivals := connection}, Sample) ->
    {Connection#connection{waiting = queue:new(), waiting_length = 0}, weir_load_sample:error(Reason, Sample)};
not_opened(Reason, Connection, _Profile, Sample) ->
    {Connection, weir_load_sample:error(Reason, Sample)}.

%% @doc A request that was due at a time is the connection's now.
-spec due(Due :: integer(), Now :: integer(), connection(), profile(), weir_load_sample:sample()) -> step().
due(Due, Now, Connection, Profile, Sample) ->
    Timed = time_if(is_inside(Due, Profile), lag, Now - Due, Sample),
    pump(Now, wait(Due, Connection), Profile, Timed, []).

%% @doc A request is due because there is room for one: a closed loop.
-spec ask(Now :: integer(), connection(), profile(), weir_load_sample:sample()) -> step().
ask(Now, Connection, Profile, Sample) ->
    pump(Now, wait(Now, Connection), Profile, Sample, []).

wait(Due, #connection{waiting = Waiting, waiting_length = Length} = Connection) ->
    Connection#connection{waiting = queue:in(Due, Waiting), waiting_length = Length + 1}.

%% Sends what is waiting, as deep as the profile allows.
pump(
    Now,
    #connection{scenario = {open, State}, waiting_length = Waiting, in_flight_length = InFlight} = Connection,
    #{depth := Depth, scenario := Scenario} = Profile,
    Sample,
    Effects
) when Waiting > 0, InFlight < Depth ->
    {{value, Due}, Rest} = queue:out(Connection#connection.waiting),
    Sequence = Connection#connection.sent + 1,
    {ok, Bytes, Later} = Scenario:request(Sequence, State),
    Begun =
        case Profile of
            #{arrivals := connection} -> Connection#connection.begun;
            #{} -> Now
        end,
    Request = #request{due = Due, begun = Begun, sent = Now},
    Counted = count_if(is_inside(Due, Profile), sent, 1, count_bytes(bytes_sent, Bytes, Now, Profile, Sample)),
    Sent = Connection#connection{
        scenario = {open, Later},
        waiting = Rest,
        waiting_length = Waiting - 1,
        in_flight = queue:in(Request, Connection#connection.in_flight),
        in_flight_length = InFlight + 1,
        sent = Sequence
    },
    pump(Now, Sent, Profile, Counted, [{send, Bytes} | Effects]);
pump(_Now, Connection, _Profile, Sample, Effects) ->
    {lists:reverse(Effects), Connection, Sample}.

%% @doc Bytes have come.
-spec received(binary(), Now :: integer(), connection(), profile(), weir_load_sample:sample()) -> step().
received(Data, Now, #connection{scenario = {open, State}} = Connection, #{scenario := Scenario} = Profile, Sample) ->
    Counted = count_bytes(bytes_received, Data, Now, Profile, Sample),
    case Scenario:response(Data, State) of
        {ok, Events, Later} ->
            Noted = note_first_byte(Now, Connection#connection{scenario = {open, Later}}),
            events(Events, Now, Noted, Profile, Counted, []);
        {error, Kind} ->
            fail(Kind, Connection, Profile, Counted, [])
    end.

note_first_byte(Now, #connection{in_flight = InFlight} = Connection) ->
    case queue:peek(InFlight) of
        {value, #request{first_byte = undefined} = Request} ->
            Connection#connection{in_flight = queue:in_r(Request#request{first_byte = Now}, queue:drop(InFlight))};
        _ ->
            Connection
    end.

events([], Now, Connection, Profile, Sample, Effects) ->
    pump(Now, Connection, Profile, Sample, Effects);
events([answered | Events], Now, Connection, #{arrivals := Arrivals} = Profile, Sample, Effects) ->
    case take(Connection) of
        {#request{due = Due, begun = Begun, sent = Sent} = Request, Later} ->
            FirstByte =
                case Request of
                    #request{first_byte = undefined} -> Now;
                    #request{first_byte = At} -> At
                end,
            Answered =
                case is_inside(Due, Profile) of
                    true ->
                        Times = [{response, Now - Due}, {service, Now - Begun}, {first_byte, FirstByte - Sent}],
                        Add = fun({Measure, Time}, Acc) -> weir_load_sample:time(Measure, Time, Acc) end,
                        lists:foldl(Add, weir_load_sample:add(answered, 1, Sample), Times);
                    false ->
                        Sample
                end,
            case Arrivals of
                connection -> ended(close, Later, Answered, Effects);
                _ -> events(Events, Now, Later, Profile, Answered, Effects)
            end;
        nothing ->
            fail(unexpected_reply, Connection, Profile, Sample, Effects)
    end;
events([{failed, Kind} | Events], Now, Connection, #{arrivals := Arrivals} = Profile, Sample, Effects) ->
    case {take(Connection), Arrivals} of
        {nothing, _} -> fail(Kind, Connection, Profile, Sample, Effects);
        {{_, Later}, connection} -> ended(abort, Later, weir_load_sample:error(Kind, Sample), Effects);
        {{_, Later}, _} -> events(Events, Now, Later, Profile, weir_load_sample:error(Kind, Sample), Effects)
    end;
events([pushed | Events], Now, Connection, Profile, Sample, Effects) ->
    events(Events, Now, Connection, Profile, count_if(is_inside(Now, Profile), pushed, 1, Sample), Effects);
events([{pushed, Took} | Events], Now, Connection, Profile, Sample, Effects) ->
    Counted = time_if(is_inside(Now, Profile), push, Took, Sample),
    events([pushed | Events], Now, Connection, Profile, Counted, Effects);
events([{send, Bytes} | Events], Now, Connection, Profile, Sample, Effects) ->
    Counted = count_bytes(bytes_sent, Bytes, Now, Profile, Sample),
    events(Events, Now, Connection, Profile, Counted, [{send, Bytes} | Effects]);
events([close | _], _Now, #connection{in_flight_length = 0} = Connection, _Profile, Sample, Effects) ->
    ended(close, Connection, Sample, Effects);
events([close | _], _Now, Connection, Profile, Sample, Effects) ->
    fail(closed, Connection, Profile, Sample, Effects).

take(#connection{in_flight = InFlight, in_flight_length = Length} = Connection) ->
    case queue:out(InFlight) of
        {{value, Request}, Rest} ->
            {Request, Connection#connection{in_flight = Rest, in_flight_length = Length - 1}};
        {empty, _} ->
            nothing
    end.

%% An error that ends the connection: of each request on its way, or of the connection itself.
fail(Kind, #connection{in_flight_length = Length} = Connection, _Profile, Sample, Effects) ->
    ended(abort, Connection, errors(max(1, Length), Kind, Sample), Effects).

errors(0, _Kind, Sample) -> Sample;
errors(Count, Kind, Sample) -> errors(Count - 1, Kind, weir_load_sample:error(Kind, Sample)).

ended(How, #connection{scenario = {open, _}} = Connection, Sample, Effects) ->
    {lists:reverse(Effects, [How]), Connection, Sample}.

%% @doc The server has ended the connection, or the system has.
-spec closed(weir_load_scenario:error(), connection(), profile(), weir_load_sample:sample()) ->
    {connection(), weir_load_sample:sample()}.
closed(closed, #connection{in_flight_length = 0} = Connection, #{held := false}, Sample) ->
    {Connection, Sample};
closed(Reason, #connection{in_flight_length = InFlight} = Connection, _Profile, Sample) ->
    {Connection, errors(max(1, InFlight), Reason, Sample)}.

%% @doc What has waited too long, fails.
-spec expire(Now :: integer(), connection(), profile(), weir_load_sample:sample()) -> step().
expire(Now, #connection{in_flight = InFlight} = Connection, #{timeout := Timeout} = Profile, Sample) ->
    Latest = Now - Timeout,
    {Kept, Noted} = expire_waiting(Latest, Connection, Sample),
    case queue:peek(InFlight) of
        {value, #request{due = Due}} when Due < Latest -> fail(timeout, Kept, Profile, Noted, []);
        _ -> {[], Kept, Noted}
    end.

expire_waiting(Latest, #connection{waiting = Waiting, waiting_length = Length} = Connection, Sample) ->
    case queue:peek(Waiting) of
        {value, Due} when Due < Latest ->
            Kept = Connection#connection{waiting = queue:drop(Waiting), waiting_length = Length - 1},
            expire_waiting(Latest, Kept, weir_load_sample:error(timeout, Sample));
        _ ->
            {Connection, Sample}
    end.

%% @doc The connection has ended, for whatever reason: its scenario is told, and what was on its way is forgotten. What
%% waits its turn waits for the connection to be opened anew.
-spec finish(connection(), profile()) -> connection().
finish(#connection{scenario = closed} = Connection, _Profile) ->
    Connection;
finish(#connection{scenario = {open, State}} = Connection, #{scenario := Scenario}) ->
    ok = Scenario:done(State),
    Connection#connection{scenario = closed, in_flight = queue:new(), in_flight_length = 0}.

%% @doc Whether it stands.
-spec is_open(connection()) -> boolean().
is_open(#connection{scenario = Scenario}) -> Scenario =/= closed.

%% @doc Requests that wait, for their turn or for an answer.
-spec pending(connection()) -> non_neg_integer().
pending(#connection{waiting_length = Waiting, in_flight_length = InFlight}) -> Waiting + InFlight.

%% @doc How many more requests may be on their way.
-spec room(connection(), profile()) -> non_neg_integer().
room(#connection{scenario = closed}, _Profile) -> 0;
room(Connection, #{depth := Depth}) -> max(0, Depth - pending(Connection)).

is_inside(_Time, #{window := undefined}) -> false;
is_inside(Time, #{window := {From, To}}) -> Time >= From andalso Time < To.

time_if(true, Measure, Nanoseconds, Sample) -> weir_load_sample:time(Measure, Nanoseconds, Sample);
time_if(false, _Measure, _Nanoseconds, Sample) -> Sample.

count_if(true, Counter, Count, Sample) -> weir_load_sample:add(Counter, Count, Sample);
count_if(false, _Counter, _Count, Sample) -> Sample.

count_bytes(Counter, Bytes, Now, Profile, Sample) ->
    count_if(is_inside(Now, Profile), Counter, iolist_size(Bytes), Sample).
