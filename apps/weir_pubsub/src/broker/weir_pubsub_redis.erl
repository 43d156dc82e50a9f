%% @private
%% @doc A shard's connection to Redis or Valkey. Commands and messages share one connection, so everything arrives in
%% the order in which it happened on the server. A snapshot that is requested after the subscription therefore leaves
%% no gap and repeats nothing.
%%
%% The shard is notified when the connection is lost, and when there is a new one. Requests made in between are not
%% kept here.
-module(weir_pubsub_redis).
-behaviour(gen_server).
-behaviour(weir_pubsub_broker).

-export([start_link/1]).
-export([init/1]).
-export([handle_call/3]).
-export([handle_cast/2]).
-export([handle_info/2]).
-export([terminate/2]).

%% A server that is asked every second and has not answered for SILENT_MS is lost. Milliseconds.
-define(CONNECT_MS, 1000).
-define(ASK_MS, 1000).
-define(SILENT_MS, 3000).

%% The first and the longest delay between two attempts to connect; a random part is added. Milliseconds.
-define(FIRST_MS, 50).
-define(LAST_MS, 2000).

%% Replies that may be missing. Requests beyond that are refused.
-define(MOST_ASKED, 20000).

-record(redis, {
    shard :: pos_integer(),
    %% Without the password: the state of a process that fails is logged.
    options :: weir_pubsub_broker:options(),
    socket = none :: gen_tcp:socket() | none,
    %% What the next replies are for, in order.
    expected = queue:new() :: queue:queue(term()),
    count = 0 :: non_neg_integer(),
    %% Received bytes that are not a whole value yet, the last part first; their size; and the size that a value needs
    %% at least.
    bytes = [] :: [binary()],
    size = 0 :: non_neg_integer(),
    wanted = 1 :: pos_integer(),
    %% The run id of the server, after everything is ready.
    run = none :: binary() | none,
    heard = 0 :: integer(),
    delay = ?FIRST_MS :: pos_integer(),
    %% Whether the loss is logged already.
    is_told = false :: boolean()
}).

-spec start_link(pos_integer()) -> {ok, pid()} | {error, term()}.
start_link(Shard) ->
    gen_server:start_link({local, weir_pubsub_broker:name(Shard)}, ?MODULE, Shard, []).

-spec init(pos_integer()) -> {ok, #redis{}}.
init(Shard) ->
    %% Exits are trapped so that terminate/2 closes the socket when the supervisor ends this process.
    _ = process_flag(trap_exit, true),
    ok = weir_pubsub_broker:set_connected(Shard, false),
    ok = weir_pubsub_broker:report(Shard, connecting),
    self() ! connect,
    _ = erlang:send_after(?ASK_MS, self(), ask),
    {ok, #redis{shard = Shard, options = maps:remove(password, weir_pubsub_broker:options())}}.

-spec handle_call(term(), gen_server:from(), #redis{}) -> {reply, {error, unknown_call}, #redis{}}.
handle_call(_Request, _From, State) -> {reply, {error, unknown_call}, State}.

%% Requests of the shard ---------------------------------------------------------------

-spec handle_cast(weir_pubsub_broker:request(), #redis{}) -> {noreply, #redis{}}.
handle_cast({Kind, Reference, _Channel}, #redis{run = Run, count = Count} = State) when
    is_reference(Reference), Kind =:= delete, (Run =:= none orelse Count > ?MOST_ASKED)
->
    {noreply, refuse(Reference, State)};
handle_cast({publish, Reference, _, _, _, _}, #redis{run = Run, count = Count} = State) when
    Run =:= none; Count > ?MOST_ASKED
->
    {noreply, refuse(Reference, State)};
handle_cast(hello, #redis{run = none, shard = Shard, is_told = IsTold} = State) ->
    ok = weir_pubsub_broker:report(
        Shard,
        case IsTold of
            true -> away;
            false -> connecting
        end
    ),
    {noreply, State};
handle_cast(_Request, #redis{run = none} = State) ->
    {noreply, State};
handle_cast(hello, State) ->
    %% The subscriptions of an earlier shard end with the connection.
    {noreply, lost(new_shard, State)};
handle_cast({open, Channel, Known}, #redis{run = Run} = State) ->
    {KnownEpoch, Next} =
        case Known of
            none -> {0, 0};
            {Epoch, Number} -> {Epoch, Number + 1}
        end,
    Arguments = [Run, weir_pubsub_id:new_epoch(), KnownEpoch, Next],
    {noreply,
        send(
            [
                {subscribe, weir_pubsub_resp:command(["SUBSCRIBE", topic(Channel, State)])},
                {{open, Channel}, weir_pubsub_redis_scripts:command(position, keys(Channel, State), Arguments)}
            ],
            State
        )};
handle_cast({leave, Channel}, State) ->
    {noreply, send([{unsubscribe, weir_pubsub_resp:command(["UNSUBSCRIBE", topic(Channel, State)])}], State)};
handle_cast({publish, Reference, Channel, Data, Meta, {Kept, Age}}, #redis{run = Run} = State) ->
    Milliseconds =
        case Age of
            infinity -> 0;
            _ -> Age
        end,
    Arguments = [
        Run, weir_pubsub_id:new_epoch(), topic(Channel, State), weir_pubsub_packed:pack(Data, Meta), Kept, Milliseconds
    ],
    Command = weir_pubsub_redis_scripts:command(publish, keys(Channel, State), Arguments),
    {noreply, send([{{answer, Reference}, Command}], State)};
handle_cast({delete, Reference, Channel}, #redis{run = Run} = State) ->
    Command = weir_pubsub_redis_scripts:command(delete, keys(Channel, State), [Run, 0, topic(Channel, State)]),
    {noreply, send([{{answer, Reference}, Command}], State)}.

refuse(Reference, #redis{shard = Shard} = State) ->
    ok = weir_pubsub_broker:report(Shard, {answer, Reference, {error, unavailable}}),
    State.

key(Channel, Part, #redis{options = #{prefix := Prefix}}) -> [Prefix, ":{", Channel, "}:", Part].

keys(Channel, State) -> [key(Channel, "life", State), key(Channel, "history", State)].

%% Unlike keys, topics do not belong to a database.
topic(Channel, #redis{options = #{prefix := Prefix, database := Database}}) ->
    [Prefix, $:, integer_to_binary(Database), $:, Channel].

channel(Topic, #redis{options = #{prefix := Prefix, database := Database}}) ->
    Size = byte_size(Prefix) + 1 + byte_size(integer_to_binary(Database)) + 1,
    <<_:Size/binary, Channel/binary>> = Topic,
    Channel.

send(Commands, #redis{socket = Socket, expected = Expected, count = Count} = State) ->
    {For, Bytes} = lists:unzip(Commands),
    case gen_tcp:send(Socket, Bytes) of
        ok -> State#redis{expected = lists:foldl(fun queue:in/2, Expected, For), count = Count + length(For)};
        {error, Reason} -> lost(Reason, State)
    end.

%% The connection ---------------------------------------------------------------------

-spec handle_info(term(), #redis{}) -> {noreply, #redis{}}.
handle_info({tcp, Socket, Data}, #redis{socket = Socket} = State) ->
    Received = received(Data, State#redis{heard = erlang:monotonic_time(millisecond)}),
    _ = Received#redis.socket =:= none orelse inet:setopts(Socket, [{active, once}]),
    {noreply, Received};
handle_info({tcp_closed, Socket}, #redis{socket = Socket} = State) ->
    {noreply, lost(closed, State)};
handle_info({tcp_error, Socket, Reason}, #redis{socket = Socket} = State) ->
    {noreply, lost(Reason, State)};
handle_info(connect, #redis{socket = none} = State) ->
    {noreply, connect(State)};
handle_info(ask, #redis{heard = Heard} = State) ->
    _ = erlang:send_after(?ASK_MS, self(), ask),
    case erlang:monotonic_time(millisecond) - Heard of
        _ when State#redis.socket =:= none -> {noreply, State};
        Silent when Silent > ?SILENT_MS -> {noreply, lost(timeout, State)};
        _ -> {noreply, send([{ping, weir_pubsub_resp:command(["PING"])}], State)}
    end;
handle_info(_Earlier, State) ->
    {noreply, State}.

connect(#redis{options = #{host := Host, port := Port}} = State) ->
    Options = [binary, {active, once}, {nodelay, true}, {send_timeout, ?SILENT_MS}, {send_timeout_close, true}],
    case gen_tcp:connect(Host, Port, Options, ?CONNECT_MS) of
        {ok, Socket} ->
            Commands = greeting(weir_pubsub_broker:options()),
            send(Commands, State#redis{socket = Socket, heard = erlang:monotonic_time(millisecond)});
        {error, Reason} ->
            lost(Reason, State)
    end.

greeting(#{database := Database} = Options) ->
    Hello =
        case Options of
            #{password := Password} -> ["HELLO", 3, "AUTH", maps:get(username, Options, <<"default">>), Password];
            #{} -> ["HELLO", 3]
        end,
    [{greeting, weir_pubsub_resp:command(Hello)}] ++
        [{greeting, weir_pubsub_resp:command(["SELECT", Database])} || Database > 0] ++
        [{greeting, Load} || Load <- weir_pubsub_redis_scripts:all()] ++
        [{info, weir_pubsub_resp:command(["INFO", "server"])}].

lost(Reason, #redis{socket = Socket, shard = Shard, run = Run, delay = Delay, is_told = IsTold, options = Options}) ->
    Socket =:= none orelse gen_tcp:close(Socket),
    _ = erlang:send_after(Delay + rand:uniform(Delay), self(), connect),
    IsNews = Reason =/= new_shard,
    ok = weir_pubsub_broker:set_connected(Shard, false),
    _ = Run =/= none andalso IsNews andalso weir_pubsub_observation:broker_lost(Shard, Reason),
    ok = weir_pubsub_broker:report(Shard, case IsNews of true -> away; false -> connecting end),
    IsTold orelse not IsNews orelse tell_lost(Reason, Shard, Options),
    #redis{shard = Shard, options = Options, delay = min(2 * Delay, ?LAST_MS), is_told = IsTold orelse IsNews}.

tell_lost(Reason, Shard, #{host := Host, port := Port}) ->
    weir_reports:log(warning, #{
        what => "no connection to Redis: subscribers stay, publishing is refused until it is back",
        host => Host,
        port => Port,
        shard => Shard,
        reason => Reason
    }).

ready(Run, #redis{shard = Shard, is_told = IsTold, options = #{host := Host, port := Port}} = State) ->
    %% The shard first: a caller who sees the broker connected must find a shard that knows it.
    ok = weir_pubsub_broker:report(Shard, connected),
    ok = weir_pubsub_observation:broker_there(Shard),
    ok = weir_pubsub_broker:set_connected(Shard, true),
    IsTold andalso
        weir_reports:log(notice, #{what => "connected to Redis again", host => Host, port => Port, shard => Shard}),
    State#redis{run = Run, delay = ?FIRST_MS, is_told = false}.

%% Replies ----------------------------------------------------------------------------

received(Data, #redis{bytes = Bytes, size = Size, wanted = Wanted} = State) when Size + byte_size(Data) < Wanted ->
    State#redis{bytes = [Data | Bytes], size = Size + byte_size(Data)};
received(Data, #redis{bytes = Bytes} = State) ->
    values(iolist_to_binary(lists:reverse(Bytes, [Data])), State#redis{bytes = [], size = 0, wanted = 1}).

values(<<>>, State) ->
    State;
values(Bytes, State) ->
    case weir_pubsub_resp:decode(Bytes) of
        {ok, Value, Rest} ->
            case value(Value, State) of
                #redis{socket = none} = Lost -> Lost;
                Next -> values(Rest, Next)
            end;
        {more, Wanted} ->
            State#redis{bytes = [Bytes], size = byte_size(Bytes), wanted = Wanted};
        {error, Reason} ->
            lost(Reason, State)
    end.

value({push, [<<"message">>, Topic, Text]}, #redis{shard = Shard} = State) ->
    case message(channel(Topic, State), Text) of
        {ok, News} ->
            ok = weir_pubsub_broker:report(Shard, News);
        error ->
            weir_reports:say(fun() ->
                weir_reports:log(warning, #{what => "an invalid message came from Redis", topic => Topic})
            end)
    end,
    State;
value({push, [<<"subscribe">> | _]}, State) ->
    {subscribe, Next} = next(State),
    Next;
value({push, [<<"unsubscribe">> | _]}, State) ->
    {unsubscribe, Next} = next(State),
    Next;
value({push, _}, State) ->
    State;
value(Reply, #redis{count = Count} = State) when Count > 0 ->
    {For, Next} = next(State),
    reply(For, Reply, Next);
value(_Reply, State) ->
    lost(bad_reply, State).

next(#redis{expected = Expected, count = Count} = State) ->
    {{value, For}, Others} = queue:out(Expected),
    {For, State#redis{expected = Others, count = Count - 1}}.

reply({answer, Reference}, {error, <<"OOM", _/binary>>}, State) ->
    refuse(Reference, State);
reply(_For, {error, Text}, State) ->
    %% The server has changed (it is a replica, or has not the scripts), or does not let us in.
    lost(Text, State);
reply({answer, Reference}, [Epoch, Number, Kept], #redis{shard = Shard} = State) ->
    Id = {binary_to_integer(Epoch), binary_to_integer(Number)},
    ok = weir_pubsub_broker:report(Shard, {answer, Reference, {ok, Id, Kept}}),
    State;
reply({answer, Reference}, null, #redis{shard = Shard} = State) ->
    ok = weir_pubsub_broker:report(Shard, {answer, Reference, {error, no_channel}}),
    State;
reply({open, Channel}, [Epoch, Last, Now, Entries], #redis{shard = Shard} = State) ->
    Snapshot = #{
        epoch => binary_to_integer(Epoch),
        last => binary_to_integer(Last),
        messages => behind_strange([entry(Entry, binary_to_integer(Now)) || Entry <- Entries])
    },
    ok = weir_pubsub_broker:report(Shard, {opened, Channel, Snapshot}),
    State;
reply(info, Info, State) when is_binary(Info) ->
    case re:run(Info, "run_id:([0-9a-f]+)", [{capture, all_but_first, binary}]) of
        {match, [Run]} -> ready(Run, State);
        nomatch -> lost(no_run_id, State)
    end;
reply(_GreetingOrPing, _Reply, State) ->
    State.

%% Other programs may write to the same Redis. Messages of a channel have consecutive numbers, so those before an
%% entry that is not ours are left out, and subscribers get a gap.
behind_strange(Entries) ->
    lists:reverse(lists:takewhile(fun(Entry) -> Entry =/= error end, lists:reverse(Entries))).

entry(Entry, Now) ->
    try
        [Id, [<<"t">>, At, <<"d">>, Packed]] = Entry,
        [Number, <<"0">>] = binary:split(Id, <<"-">>),
        {ok, Data, Meta} = weir_pubsub_packed:unpack(Packed),
        {binary_to_integer(Number), max(0, Now - binary_to_integer(At)), Data, Meta}
    catch
        error:_ -> error
    end.

message(Channel, Text) ->
    try
        {ok, news(Channel, Text)}
    catch
        error:_ -> error
    end.

news(Channel, <<$d, Epoch/binary>>) ->
    {deleted, Channel, binary_to_integer(Epoch)};
news(Channel, <<$m, Text/binary>>) ->
    [Epoch, Rest] = binary:split(Text, <<" ">>),
    [Number, Packed] = binary:split(Rest, <<" ">>),
    {ok, Data, Meta} = weir_pubsub_packed:unpack(Packed),
    {message, Channel, {binary_to_integer(Epoch), binary_to_integer(Number)}, binary:copy(Data), Meta}.

-spec terminate(term(), #redis{}) -> ok.
terminate(_Reason, #redis{socket = none}) -> ok;
terminate(_Reason, #redis{socket = Socket}) -> gen_tcp:close(Socket).
