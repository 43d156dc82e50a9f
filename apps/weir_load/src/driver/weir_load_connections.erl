%% @private
%% @doc The connections of a driver, from the first connect on.
%%
%% They are in the process dictionary. A socket's handle maps to its connection. A negative connection number maps to
%% the handle, or to the connection itself while it has no socket. So finding a connection is one hash lookup, and
%% changing it copies nothing else, however many there are.
-module(weir_load_connections).

-include("weir_load_driver.hrl").

-export([keys/0]).
-export([dial/3]).
-export([dial_again/2]).
-export([lost/3]).
-export([ask/3]).
-export([start_another/1]).
-export([arrival/3]).
-export([step/4]).
-export([expire/3]).

-export_type([key/0]).

-type driver() :: #driver{}.

-type key() :: integer().
%% The handle of a socket, or a negative connection number.

%% A write is an improper list, `[Handle | Bytes]': two words.
-dialyzer({no_improper_lists, [effects/5]}).

%% Milliseconds before a failed connection is opened again, so that a server that refuses is not flooded.
-define(REST, 100).

%% @doc Returns the key of each connection, once.
-spec keys() -> [key()].
keys() -> [Key || {Key, Connection} <- get(), is_integer(Key), not is_integer(Connection)].

%% @doc Starts to open a connection.
-spec dial(Number :: pos_integer(), weir_load_connection:connection(), driver()) -> driver().
dial(Number, Connection, #driver{share = Share, reactor = Reactor, dialing = Dialing} = Driver) ->
    #{address := Address, port := Port} = Share,
    Opening = weir_load_connection:opening(erlang:monotonic_time(nanosecond), Connection),
    Options = weir_load_family:source(Address, Number) ++ [
        binary,
        {nodelay, true},
        %% Close with a reset, which leaves no port in TIME_WAIT. Otherwise the connections of a minute use up all
        %% ports.
        {linger, {true, 0}}
    ],
    case weir_load_reactor:connect(Address, Port, Options, Reactor) of
        {ok, Handle} ->
            _ = put(Handle, Opening),
            _ = put(-Number, Handle),
            Driver#driver{dialing = Dialing + 1};
        {error, Reason} ->
            not_opened(error_kind(Reason), Opening, Driver#driver{dialing = Dialing + 1})
    end.

%% @doc Opens a failed connection again, after the pause.
-spec dial_again(Number :: pos_integer(), driver()) -> driver().
dial_again(Number, Driver) ->
    Connection = get(-Number),
    case is_wanted(Connection, Driver) of
        true -> dial(Number, Connection, Driver);
        false -> Driver
    end.

%% @doc Handles a socket that was closed by its peer or the system, or could not be connected.
-spec lost(weir_nif:handle(), Reason :: atom(), driver()) -> driver().
lost(Handle, Reason, #driver{profile = Profile, sample = Sample} = Driver) ->
    case erase(Handle) of
        undefined ->
            Driver;
        Connection ->
            case weir_load_connection:is_open(Connection) of
                true ->
                    {Closed, Noted} = weir_load_connection:closed(error_kind(Reason), Connection, Profile, Sample),
                    ended(abort, Connection, Closed, Driver#driver{sample = Noted});
                false ->
                    not_opened(error_kind(Reason), Connection, Driver)
            end
    end.

not_opened(Reason, Connection, #driver{profile = Profile, sample = Sample, dialing = Dialing} = Driver) ->
    {Failed, Noted} = weir_load_connection:not_opened(Reason, Connection, Profile, Sample),
    ended(abort, Connection, Failed, Driver#driver{sample = Noted, dialing = Dialing - 1, last_error = Reason}).

error_kind(econnrefused) -> refused;
error_kind(econnreset) -> reset;
error_kind(etimedout) -> timeout;
error_kind(Reason) -> Reason.

%% @doc Starts a closed loop on a connection.
-spec ask(key(), Now :: integer(), driver()) -> driver().
ask(Key, Now, #driver{profile = Profile, sample = Sample} = Driver) ->
    Connection = get(Key),
    step(Key, Connection, weir_load_connection:ask(Now, Connection, Profile, Sample), Driver).

%% @doc Opens a connection for the next request of a closed loop in which each request has its own.
-spec start_another(driver()) -> driver().
start_another(#driver{profile = Profile, sample = Sample} = Driver) ->
    {Number, Numbered} = next_number(Driver),
    Now = erlang:monotonic_time(nanosecond),
    {[], Connection, Counted} =
        weir_load_connection:ask(Now, weir_load_connection:new(Number), Profile, Sample),
    begin_with(Connection, Numbered#driver{sample = Counted}).

%% Dials a connection that has a waiting request already.
begin_with(Connection, #driver{pending = Pending} = Driver) ->
    dial(weir_load_connection:number(Connection), Connection, Driver#driver{pending = Pending + 1}).

next_number(#driver{turn = Number, share = #{drivers := Drivers}} = Driver) ->
    {Number, Driver#driver{turn = Number + Drivers}}.

%% @doc Handles a request that is due, on the connection whose turn it is, or on its own.
-spec arrival(Due :: integer(), Now :: integer(), driver()) -> driver().
arrival(Due, Now, #driver{share = #{opens := false}, profile = Profile, sample = Sample} = Driver) ->
    {Number, Numbered} = next_number(Driver),
    {[], Connection, Timed} =
        weir_load_connection:due(Due, Now, weir_load_connection:new(Number), Profile, Sample),
    begin_with(Connection, Numbered#driver{sample = Timed});
arrival(Due, Now, #driver{profile = Profile, sample = Sample} = Driver) ->
    {Number, Numbered} = next_turn(Driver),
    {Key, Connection} =
        case get(-Number) of
            Handle when is_integer(Handle) -> {Handle, get(Handle)};
            Unconnected -> {-Number, Unconnected}
        end,
    step(Key, Connection, weir_load_connection:due(Due, Now, Connection, Profile, Sample), Numbered).

next_turn(#driver{turn = Number, share = #{number := First, drivers := Drivers, total := Total}} = Driver) ->
    case Number + Drivers of
        Next when Next =< Total -> {Number, Driver#driver{turn = Next}};
        _ -> {Number, Driver#driver{turn = First}}
    end.

%% @doc Stores the new state of a connection and carries out its effects.
-spec step(key(), Before :: weir_load_connection:connection(), weir_load_connection:step(), driver()) -> driver().
step(Key, Before, {Effects, Connection, Sample}, #driver{writes = Writes} = Driver) ->
    _ = put(Key, Connection),
    Pending =
        Driver#driver.pending - weir_load_connection:pending(Before) + weir_load_connection:pending(Connection),
    case Effects of
        [] -> Driver#driver{sample = Sample, pending = Pending};
        [{send, Bytes}] -> Driver#driver{sample = Sample, pending = Pending, writes = [[Key | Bytes] | Writes]};
        _ -> effects(Effects, [], Key, Connection, Driver#driver{sample = Sample, pending = Pending})
    end.

%% Joins several sends into one write.
effects([{send, Bytes} | Effects], Sent, Handle, Connection, Driver) ->
    effects(Effects, [Bytes | Sent], Handle, Connection, Driver);
effects([How], [], Handle, Connection, #driver{writes = Writes} = Driver) when How =:= close; How =:= abort ->
    _ = erase(Handle),
    ended(How, Connection, Connection, Driver#driver{writes = [Handle | Writes]});
effects(Effects, [_ | _] = Sent, Handle, Connection, #driver{writes = Writes} = Driver) ->
    Sending = Driver#driver{writes = [[Handle | lists:reverse(Sent)] | Writes]},
    case Effects of
        [] -> Sending;
        [_] -> effects(Effects, [], Handle, Connection, Sending)
    end.

%% The socket is closed. Counted is the state whose pending requests are included in the driver's count.
ended(How, Counted, Ended, #driver{profile = Profile, pending = Pending} = Driver) ->
    Connection = weir_load_connection:finish(Ended, Profile),
    Left = Pending - weir_load_connection:pending(Counted) + weir_load_connection:pending(Connection),
    again(How, weir_load_connection:number(Connection), Connection, Driver#driver{pending = Left}).

%% Opens a connection again. If each request has its own, forgets it, and a closed loop starts another.
again(How, Number, Connection, #driver{share = #{opens := false}, pending = Pending} = Driver) ->
    _ = erase(-Number),
    another(How, Driver#driver{pending = Pending - weir_load_connection:pending(Connection)});
again(How, Number, Connection, Driver) ->
    _ = put(-Number, Connection),
    case is_wanted(Connection, Driver) of
        true when How =:= close ->
            dial(Number, Connection, Driver);
        true ->
            _ = erlang:send_after(?REST, self(), {dial, Number}),
            Driver;
        false ->
            Driver
    end.

%% After the window only waiting requests need a connection.
is_wanted(Connection, #driver{phase = draining}) -> weir_load_connection:pending(Connection) > 0;
is_wanted(_Connection, _Driver) -> true.

another(_How, #driver{asks = false} = Driver) ->
    Driver;
another(close, Driver) ->
    start_another(Driver);
another(abort, Driver) ->
    _ = erlang:send_after(?REST, self(), start_another),
    Driver.

%% @doc Fails the requests of a connection that have timed out, or the connect itself.
-spec expire(key(), Now :: integer(), driver()) -> driver().
expire(Key, Now, Driver) ->
    case get(Key) of
        Gone when Gone =:= undefined; is_integer(Gone) -> Driver;
        Connection -> expire(Key, Connection, Now, Driver)
    end.

expire(Key, Connection, Now, #driver{profile = Profile, sample = Sample, share = #{opens := Opens}} = Driver) ->
    case Key > 0 andalso weir_load_connection:is_late(Now, Connection, Profile) of
        true ->
            _ = erase(Key),
            not_opened(timeout, Connection, Driver#driver{writes = [Key | Driver#driver.writes]});
        false ->
            %% If each request has its own connection, it fails with the connect.
            case Opens orelse weir_load_connection:is_open(Connection) of
                true -> step(Key, Connection, weir_load_connection:expire(Now, Connection, Profile, Sample), Driver);
                false -> Driver
            end
    end.
