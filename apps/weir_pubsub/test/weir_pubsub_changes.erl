%% Everything at once, for users with bad luck: programs publish, subscribe, unsubscribe, read histories and presence,
%% delete channels, and change the configuration; clients do the same over HTTP by each transport; shards are killed.
%% The laws of `prop_pubsub' and `prop_pubsub_http' hold for each of them, no shard fails, and at the end nothing is
%% left in any table or count.
-module(weir_pubsub_changes).

-include_lib("proper/include/proper.hrl").
-include_lib("weir_testing/include/weir_test.hrl").
-include("../src/weir_pubsub.hrl").
-include("../src/weir_pubsub_shard.hrl").

-export([start/0]).
-export([stop/0]).
-export([rounds/3]).

-define(CHANNELS, [<<"one">>, <<"two">>, <<"three">>]).
-define(EVENTS, <<"events">>).
-define(POLLERS, 12).

%% The supervisor of the shards allows twenty restarts in a second. It counts whole seconds, so that can be the last
%% two.
-define(KILLS_MS, 130).

%% The clients use the listener of prop_pubsub_http.
start() ->
    {ok, _} = application:ensure_all_started(weir_pubsub),
    {ok, _} = weir_http:start_listener(
        prop_pubsub_http, #{ip => {127, 0, 0, 1}}, weir_pubsub_http:routes(#{publishers => any})
    ),
    ok.

stop() ->
    ok = weir_http:stop_listener(prop_pubsub_http),
    ok = application:stop(weir_pubsub).

%% Runs rounds from a seed on, with programs of at most `Steps' steps. The seed of a round that fails is reported: it
%% gives the same programs, but not the same order in which schedulers run them.
rounds(_Seed, 0, _Steps) ->
    ok;
rounds(Seed, Rounds, Steps) ->
    {ok, Everything} = proper_gen:pick(everything(), Steps, {Seed, Seed, Seed}),
    case tried(Everything) of
        {ok, []} -> rounds(Seed + 1, Rounds - 1, Steps);
        {Verdict, Died} -> error({failed, #{seed => Seed, steps => Steps, verdict => Verdict, shards => Died}})
    end.

everything() ->
    {
        configuration(),
        range(0, 3),
        vector(6, list(step())),
        vector(3, ?SIZED(Size, resize(Size div 3, list(client_step())))),
        polls()
    }.

tried({Configuration, Kills, Programs, Clients, Polls}) ->
    ok = weir_pubsub:configure(Configuration),
    Watch = spawn_monitor(fun() -> watch() end),
    Actors =
        [spawn_monitor(fun() -> exit({shutdown, prop_pubsub:run(Program)}) end) || Program <- Programs] ++
            [
                spawn_monitor(fun() -> exit({shutdown, prop_pubsub_http:run(Program)}) end)
             || Program <- Polls ++ Clients
            ],
    ok = kill(Kills),
    Logs = [ended(Actor, 4 * weir_test_wait:patience()) || Actor <- Actors],
    ok = everything_goes(),
    {agree(Logs), died(Watch)}.

channel() -> oneof(?CHANNELS).

step() ->
    frequency([
        {12, {publish, channel(), range(0, 60)}},
        {4, {subscribe, channel(), oneof([new, oldest, {last, 2}, back, nonsense]), oneof([infinity, 1, 3])}},
        {2, {unsubscribe, channel()}},
        {3, {take, channel()}},
        {1, {delete, channel()}},
        {2, {history, channel()}},
        {1, {presence, channel()}},
        {1, usage},
        {2, {configure, configuration()}}
    ]).

client_step() ->
    frequency([
        {10, {try_publish, channels(), oneof([10, 1000])}},
        {5,
            {subscribe, channels(), oneof([stream, multipart, websocket, poll, polls]),
                oneof([oldest, back, nonsense])}},
        {2, drop},
        {2, {read, boolean()}},
        {1, {delete, channel()}}
    ]).

%% Mostly of one channel: only then messages are written to groups of sockets.
channels() ->
    frequency([
        {4, ?LET(Channel, channel(), [Channel])},
        {1, ?LET({A, B}, {channel(), channel()}, lists:usort([A, B]))},
        {1, ?CHANNELS}
    ]).

%% As many as it takes for most of them to wait together.
polls() -> vector(?POLLERS, [{subscribe, [<<"one">>], oneof([poll, poll, polls]), oneof([oldest, back])}]).

%% Patterns that match nothing change the indices of the policies after them.
configuration() ->
    ?LET(
        {Before, Patterns, Total, Groups},
        {range(0, 9), resize(10, list({oneof([<<"*">>, <<"t*">> | ?CHANNELS]), policy()})), limits(), {
            limits(), limits()
        }},
        #{
            channels => [{?EVENTS, #{}} | lists:duplicate(Before, {<<"nothing">>, #{presence => true}})] ++ Patterns,
            groups => #{<<"g">> => element(1, Groups), <<"h">> => element(2, Groups)},
            total => Total
        }
    ).

policy() ->
    ?LET(
        {Messages, Bytes, Age, Slow, Queue, Idle, Most, Presence, Events, Group},
        {
            oneof([0, 1, 3, 10, 1000]),
            oneof([50, 1000000]),
            oneof([1, 20, infinity]),
            oneof([drop_oldest, disconnect]),
            oneof([1, 4, 64]),
            oneof([0, 10, 5000]),
            oneof([2, infinity, infinity]),
            boolean(),
            oneof([none, none, ?EVENTS]),
            oneof([<<>>, <<"g">>, <<"h">>])
        },
        #{
            max_messages => Messages,
            max_bytes => Bytes,
            max_age => Age,
            slow => Slow,
            max_queue => Queue,
            idle_timeout => Idle,
            max_subscribers => Most,
            presence => Presence,
            events => Events,
            group => Group
        }
    ).

limits() ->
    ?LET(
        {Channels, Subscribers, Messages, Bytes},
        {seldom(2), seldom(3), seldom(5), seldom(300)},
        #{channels => Channels, subscribers => Subscribers, messages => Messages, bytes => Bytes}
    ).

seldom(Limit) -> frequency([{1, Limit}, {5, infinity}]).

ended({Pid, Monitor}, Time) ->
    receive
        {'DOWN', Monitor, process, Pid, Reason} -> Reason
    after Time -> {timeout, process_info(Pid)}
    end.

%% Shards that die -------------------------------------------------------------------

kill(0) ->
    ok;
kill(Left) ->
    timer:sleep(?KILLS_MS),
    Shard = whereis(weir_pubsub_shards:name(rand:uniform(weir_pubsub_shards:count()))),
    _ = is_pid(Shard) andalso exit(Shard, kill),
    kill(Left - 1).

%% Returns why shards have died, except those that were killed.
watch() ->
    _ = [monitor(process, Pid) || Pid <- shards(), is_pid(Pid)],
    watch([]).

watch(Died) ->
    receive
        {'DOWN', _, process, Pid, Reason} ->
            %% Wait for the next shard.
            ?waitMatch(true, lists:all(fun is_pid/1, shards())),
            _ = [monitor(process, Next) || Next <- shards(), is_pid(Next), Next =/= Pid],
            watch([{Pid, Reason} || Reason =/= killed, Reason =/= noproc] ++ Died);
        over ->
            exit({shutdown, lists:usort(Died)})
    end.

shards() -> [whereis(weir_pubsub_shards:name(Index)) || Index <- lists:seq(1, weir_pubsub_shards:count())].

died({Pid, _} = Watch) ->
    Pid ! over,
    {shutdown, Died} = ended(Watch, weir_test_wait:patience()),
    Died.

%% What is left ----------------------------------------------------------------------

everything_goes() ->
    ok = weir_pubsub:configure(#{}),
    _ = [?waitMatch({error, no_channel}, deleted(Channel)) || Channel <- [?EVENTS | ?CHANNELS]],
    _ = [?waitEqual([], left(Index)) || Index <- lists:seq(1, weir_pubsub_shards:count())],
    #configuration{groups = Groups} = weir_pubsub_configuration:current(),
    maps:foreach(
        fun(_, {Counts, _}) ->
            #{size := Size} = atomics:info(Counts),
            %% After the first words, which are not counts.
            ?waitEqual([], [Word || Word <- lists:seq(9, Size), atomics:get(Counts, Word) =/= 0])
        end,
        Groups
    ).

deleted(Channel) ->
    _ = weir_pubsub:delete(Channel),
    weir_pubsub:info(Channel).

left(Index) ->
    Shard = weir_pubsub_shards:shard(Index),
    #shard{
        channels = Channels,
        messages = Messages,
        due = Due,
        requests = Requests,
        subscribers = {Subscribers, Processes, Polls}
    } = Shard,
    Tables = [Channels, Messages, Due, Requests, Subscribers, Processes, Polls],
    #shard{
        monitors = Monitors,
        opening = Opening,
        asked = Asked,
        behind = Behind,
        ending = Ending,
        renewing = Renewing
    } = sys:get_state(weir_pubsub_shards:name(Index), weir_test_wait:patience()),
    [{Table, Rows} || Table <- Tables, [_ | _] = Rows <- [ets:tab2list(Table)]] ++
        [Map || Map <- [Monitors, Opening, Asked, Behind, Ending], map_size(Map) > 0] ++ Renewing.

%% All of them -----------------------------------------------------------------------

%% An id means one message, for everybody, and a message has one id.
agree(Logs) ->
    case [Log || Log <- Logs, not is_done(Log)] of
        [] ->
            agree(lists:append([lists:append([entry(Entry) || Entry <- Log]) || {shutdown, {done, Log}} <- Logs]), #{});
        Failed ->
            {failed, Failed}
    end.

is_done({shutdown, {done, _}}) -> true;
is_done(_) -> false.

entry({published, Channel, Id, Data}) -> [{Channel, Id, Data}];
entry({got, Channel, Id, Data}) -> [{Channel, Id, Data}];
entry({tried, _, _}) -> [];
entry({_Channel, _Id, _Data} = Got) -> [Got].

agree([{Channel, Id, Data} | Others], Known) ->
    case Known of
        #{{id, Channel, Id} := Other} when Other =/= Data -> {two_messages, Channel, Id, Data, Other};
        #{{data, Channel, Data} := Other} when Other =/= Id -> {two_ids, Channel, Data, Id, Other};
        #{} -> agree(Others, Known#{{id, Channel, Id} => Data, {data, Channel, Data} => Id})
    end;
agree([], _Known) ->
    ok.
