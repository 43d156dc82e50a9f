%% @doc The policies of channels: a configuration, checked as a whole before any of it applies.
%%
%% A configuration is a map:
%% <dl>
%% <dt>`channels' (`[]')</dt><dd>pairs of a pattern and a {@type policy()}. The first pattern that matches a channel
%%   applies; a channel that matches none has the defaults. In a pattern `*' stands for any number of bytes, including
%%   none</dd>
%% <dt>`groups' (`#{}')</dt><dd>limits of groups by their names, see {@link weir_pubsub_limits:limits()}</dd>
%% <dt>`total' (`#{}')</dt><dd>limits of all channels together</dd>
%% </dl>
-module(weir_pubsub_policies).

-include("weir_pubsub.hrl").

-export([configure/1]).
-export([begin_with/1]).
-export([check/1]).
-export([names/0]).
-export([find/2]).

-export_type([configuration/0, policy/0, known/0]).

-type configuration() :: #{
    channels => [{Pattern :: binary(), policy()}],
    groups => #{binary() => weir_pubsub_limits:limits()},
    total => weir_pubsub_limits:limits()
}.

-type policy() :: #{
    max_messages => non_neg_integer(),
    max_bytes => non_neg_integer(),
    max_age => pos_integer() | infinity,
    max_message => pos_integer(),
    max_subscribers => non_neg_integer() | infinity,
    idle_timeout => non_neg_integer(),
    slow => drop_oldest | disconnect,
    max_queue => pos_integer(),
    max_queue_bytes => pos_integer(),
    presence => boolean(),
    events => weir_pubsub:channel() | none,
    group => binary()
}.
%% <dl>
%% <dt>`max_messages' (10), `max_bytes' (1048576), `max_age' (3600000)</dt><dd>limits of the history: messages, their
%%   bytes (data, type, event and topics), and their age in milliseconds, or `infinity'. One message is kept whatever
%%   its size, unless `max_messages' is 0</dd>
%% <dt>`max_message' (1000000)</dt><dd>the maximum size of a message in bytes</dd>
%% <dt>`max_subscribers' (`infinity')</dt><dd>the maximum number of subscribers of one channel</dd>
%% <dt>`idle_timeout' (5000)</dt><dd>milliseconds after which a channel without messages and subscribers is
%%   removed</dd>
%% <dt>`slow' (`drop_oldest')</dt><dd>what happens to a subscriber that lags too far behind. `drop_oldest': it misses
%%   the oldest messages and gets a gap. `disconnect': its subscription ends; a socket is closed, and its client
%%   reconnects with the id of the last message that it got. Sockets keep the value that held when the first of them
%%   subscribed</dd>
%% <dt>`max_queue' (64), `max_queue_bytes' (1048576)</dt><dd>the maximum number of messages, and of their bytes, in
%%   the queue of one socket. A process sets a window, see {@link weir_pubsub:subscribe/2}</dd>
%% <dt>`presence' (`false')</dt><dd>whether {@link weir_pubsub:presence/1} returns the subscribers</dd>
%% <dt>`events' (`none')</dt><dd>a channel that gets a message about each subscription, publication and deletion. The
%%   policy of that channel must have no `events'</dd>
%% <dt>`group' (`<<"">>')</dt><dd>the group whose limits the channel shares: one of `groups'</dd>
%% </dl>

-type known() :: {Version :: pos_integer(), Number :: pos_integer()}.
%% A version of the configuration, and the index of a policy in it, which is valid only in that version.

-define(DEFAULTS, #{
    max_messages => 10,
    max_bytes => 16#100000,
    max_age => 3600000,
    max_message => 1000000,
    max_subscribers => infinity,
    idle_timeout => 5000,
    slow => drop_oldest,
    max_queue => 64,
    max_queue_bytes => 16#100000,
    presence => false,
    events => none,
    group => <<>>
}).

%% @doc Applies a configuration, or nothing of it if anything in it is wrong. All later requests follow it. Each
%% channel that exists gets the policy that matches its name now:
%% <ul>
%% <li>messages beyond the new count or age are dropped. The shards do that in the background, 100 channels at a
%%   time</li>
%% <li>subscribers stay, even if there are more than a limit allows; subscriptions and messages are refused until
%%   there is room</li>
%% <li>a channel whose group is another one is counted there, by the same background work</li>
%% </ul>
%% The error names the place as a list of keys: `{bad_option, [channels, <<"chat/*">>, max_age], 0, Allowed}'.
%% `{not_started, weir_pubsub}': the application is not running. `unavailable': the process that changes the
%% configuration was killed during the call; it is safe to try again.
-spec configure(configuration()) ->
    ok | {error, {bad_option, Place :: [term()], Value :: term(), Allowed :: string()} | weir_pubsub:unavailable()}.
configure(Configuration) ->
    case changed(Configuration, fun weir_pubsub_configuration:change/1) of
        ok -> weir_pubsub_shards:cast_all(configured);
        {error, _} = Error -> Error
    end.

%% @private
%% @doc Same as {@link configure/1} for the first configuration, before the processes of the application run.
-spec begin_with(configuration()) ->
    ok | {error, {bad_option, Place :: [term()], Value :: term(), Allowed :: string()}}.
begin_with(Configuration) -> changed(Configuration, fun weir_pubsub_configuration:set/1).

changed(Configuration, Change) ->
    case checked(Configuration) of
        {ok, Checked} -> Change(fun(Before) -> next(Checked, Before) end);
        {error, _} = Error -> Error
    end.

next(Checked, none) ->
    next(Checked, #configuration{version = 0, rules = [], policies = {}, groups = #{}});
next({Channels, Groups, Total}, #configuration{version = Version, groups = Before}) ->
    Policies = [new(#{}) | [Policy || {_, _, Policy} <- Channels]],
    #configuration{
        version = Version + 1,
        rules = [{Parts, Number} || {{_, Parts, _}, Number} <- lists:zip(Channels, lists:seq(2, length(Policies)))],
        policies = list_to_tuple(Policies),
        groups = weir_pubsub_limits:groups(Total, Groups, [Group || #policy{group = Group} <- Policies], Before)
    }.

%% @doc Whether {@link configure/1} would accept it.
-spec check(configuration()) -> ok | {error, {bad_option, Place :: [term()], Value :: term(), Allowed :: string()}}.
check(Configuration) ->
    case checked(Configuration) of
        {ok, _} -> ok;
        {error, _} = Error -> Error
    end.

%% @doc Returns the names of the options of a policy.
-spec names() -> [atom()].
names() -> maps:keys(?DEFAULTS).

checked(Configuration) ->
    try
        ok = known([], Configuration, [channels, groups, total]),
        Channels = channels(maps:get(channels, Configuration, [])),
        Groups = groups(maps:get(groups, Configuration, #{})),
        Total = limits([total], maps:get(total, Configuration, #{})),
        ok = groups_are_there(Channels, Groups),
        ok = no_events_of_events(Channels, [new(#{}) | [Policy || {_, _, Policy} <- Channels]]),
        {ok, {Channels, Groups, Total}}
    catch
        throw:{bad_option, _, _, _} = Bad -> {error, Bad}
    end.

%% @private
%% @doc Returns the current policy of a channel. `Known' is what an earlier call returned for the channel. If the
%% configuration is still the same, it saves matching the patterns; otherwise it is ignored.
-spec find(weir_pubsub:channel(), known() | none) -> {known(), #policy{}}.
find(Name, Known) ->
    #configuration{version = Version, rules = Rules, policies = Policies} = weir_pubsub_configuration:current(),
    case Known of
        {Version, Number} ->
            {Known, element(Number, Policies)};
        _ ->
            Number = first(Name, Rules),
            {{Version, Number}, element(Number, Policies)}
    end.

first(Name, [{Parts, Number} | Rules]) ->
    case weir_pubsub_pattern:fits(Name, Parts) of
        true -> Number;
        false -> first(Name, Rules)
    end;
first(_Name, []) ->
    1.

channels(Channels) when is_list(Channels) ->
    [channel(Entry) || Entry <- Channels];
channels(Value) ->
    bad([channels], Value, "a list of {Pattern, Policy}").

channel({Pattern, Policy}) when is_binary(Pattern), Pattern =/= <<>> ->
    ok = known([channels, Pattern], Policy, maps:keys(?DEFAULTS)),
    maps:foreach(fun(Key, Value) -> checked([channels, Pattern, Key], Value, allowed(Key, Value)) end, Policy),
    {Pattern, weir_pubsub_pattern:new(Pattern), new(Policy)};
channel(Entry) ->
    bad([channels], Entry, "{Pattern, Policy}: a binary that is not empty, and a map").

new(Policy) ->
    #{
        max_messages := Messages,
        max_bytes := Bytes,
        max_age := Age,
        max_message := Message,
        max_subscribers := Subscribers,
        idle_timeout := Idle,
        slow := Slow,
        max_queue := Queue,
        max_queue_bytes := QueueBytes,
        presence := Presence,
        events := Events,
        group := Group
    } = maps:merge(?DEFAULTS, Policy),
    #policy{
        max_messages = Messages,
        max_bytes = Bytes,
        max_age = Age,
        max_message = Message,
        max_subscribers = Subscribers,
        idle_timeout = Idle,
        slow = Slow,
        max_queue = Queue,
        max_queue_bytes = QueueBytes,
        presence = Presence,
        events = Events,
        group = Group
    }.

allowed(Key, Value) when Key =:= max_messages; Key =:= max_bytes; Key =:= idle_timeout ->
    (is_integer(Value) andalso Value >= 0 andalso Value < 1 bsl 40) orelse "an integer from 0 on";
allowed(Key, Value) when Key =:= max_queue; Key =:= max_queue_bytes ->
    (is_integer(Value) andalso Value > 0 andalso Value < 1 bsl 32) orelse "an integer from 1 to 4294967295";
allowed(max_message, Value) ->
    (is_integer(Value) andalso Value > 0 andalso Value =< 1000000) orelse "bytes from 1 to 1000000";
allowed(max_age, Value) ->
    Value =:= infinity orelse (is_integer(Value) andalso Value > 0 andalso Value < 1 bsl 40) orelse
        "milliseconds from 1 on, or infinity";
allowed(max_subscribers, Value) ->
    Value =:= infinity orelse (is_integer(Value) andalso Value >= 0) orelse "an integer from 0 on, or infinity";
allowed(slow, Value) ->
    lists:member(Value, [drop_oldest, disconnect]) orelse "drop_oldest or disconnect";
allowed(presence, Value) ->
    is_boolean(Value) orelse "true or false";
allowed(events, Value) ->
    Value =:= none orelse weir_pubsub_shards:is_channel(Value) orelse "none, or the name of a channel";
allowed(group, Value) ->
    is_binary(Value) orelse "a binary".

%% A misspelled group would have no limit.
groups_are_there(Channels, Groups) ->
    lists:foreach(
        fun({Pattern, _, #policy{group = Group}}) ->
            Group =:= <<>> orelse is_map_key(Group, Groups) orelse
                bad([channels, Pattern, group], Group, group_allowed(maps:keys(Groups)))
        end,
        Channels
    ).

group_allowed([]) ->
    "the name of a group, but groups is empty";
group_allowed(Names) ->
    "the name of a group: " ++ binary_to_list(iolist_to_binary(lists:join(", ", lists:sort(Names)))).

%% Otherwise each event would cause another event.
no_events_of_events(Channels, [_ | Policies]) ->
    lists:foreach(
        fun
            ({{Pattern, _, _}, #policy{events = Events}}) when Events =/= none ->
                {_, Parts, Of} = fitting(Events, Channels),
                Of#policy.events =:= none orelse
                    bad(
                        [channels, Pattern, events], Events, "a channel whose policy, of " ++ Parts ++ ", has no events"
                    );
            (_) ->
                ok
        end,
        lists:zip(Channels, Policies)
    ).

fitting(Name, Channels) ->
    case lists:dropwhile(fun({_, Parts, _}) -> not weir_pubsub_pattern:fits(Name, Parts) end, Channels) of
        [{Pattern, _, Policy} | _] -> {Name, binary_to_list(Pattern), Policy};
        [] -> {Name, "the defaults", new(#{})}
    end.

groups(Groups) when is_map(Groups) ->
    maps:map(
        fun
            (Name, Limits) when is_binary(Name) -> limits([groups, Name], Limits);
            (Name, _) -> bad([groups], Name, "the name of a group, a binary")
        end,
        Groups
    );
groups(Value) ->
    bad([groups], Value, "a map").

limits(Place, Limits) ->
    ok = known(Place, Limits, weir_pubsub_limits:kinds()),
    maps:foreach(
        fun(Key, Value) -> checked(Place ++ [Key], Value, weir_pubsub_limits:allowed(Value)) end,
        Limits
    ),
    Limits.

known(Place, Map, Known) when is_map(Map) ->
    case maps:keys(Map) -- Known of
        [] -> ok;
        [Key | _] -> bad(Place ++ [Key], maps:get(Key, Map), "unknown; valid: " ++ names(Known))
    end;
known(Place, Value, _Known) ->
    bad(Place, Value, "a map").

names(Known) ->
    lists:append(lists:join(", ", [atom_to_list(Name) || Name <- Known])).

checked(_Place, _Value, true) -> ok;
checked(Place, Value, Allowed) -> bad(Place, Value, Allowed).

-spec bad([term()], term(), string()) -> no_return().
bad(Place, Value, Allowed) -> throw({bad_option, Place, Value, Allowed}).
