%% @private
%% @doc The state of a server in its backend's process: whether it takes connections, and with which weight. Pure
%% functions, apart from the clock.
-module(weir_proxy_server).

-include("weir_proxy.hrl").

-export([new/2]).
-export([change/3]).
-export([name/1]).
-export([endpoint/1]).
-export([checked_at/1]).
-export([set_admin/2]).
-export([set_weight/2]).
-export([resolved/2]).
-export([checked/4]).
-export([advised/3]).
-export([failing/2]).
-export([fails_for/2]).
-export([eligible/2]).
-export([slow_starting/2]).
-export([state/2]).
-export([latency/1]).
-export([to_map/2]).

-export_type([member/0, admin/0, now/0]).

-type admin() :: ready | drain | maint.
%% `drain': no new connections, old ones go on. `maint': no checks either.

-type now() :: integer().
%% Milliseconds of the monotonic clock.

-record(member, {
    config :: weir_proxy_config:server(),
    numbers :: atomics:atomics_ref(),
    %% Reply times, if the backend has `measure'.
    latency = none :: weir_relay:latency() | none,
    address :: weir_tcp:name() | unresolved,
    admin = ready :: admin(),
    %% An operator's weight replaces the configured one until that one changes.
    weight :: 0..256 | configured,
    health :: weir_proxy_health:health() | none,
    is_up = true :: boolean(),
    %% The last state that its agent reported.
    agent = #{} :: weir_proxy_agent:answer(),
    %% Connections to it failed: it gets none until then.
    failing_until = none :: now() | none,
    %% When it came up again: its slow start begins then.
    rising_since = none :: now() | none,
    slow_start :: non_neg_integer(),
    changed :: now(),
    last_check = none :: none | #{result := ok | {error, term()}, took_ms := non_neg_integer()},
    checks_failed = 0 :: non_neg_integer(),
    downs = 0 :: non_neg_integer()
}).

-opaque member() :: #member{}.

%% @doc Returns the state of a new server.
-spec new(weir_proxy_config:server(), weir_proxy_config:backend()) -> member().
new(Config, Backend) ->
    change(Config, Backend, #member{
        config = Config,
        numbers = weir_proxy_counters:new(),
        address = unresolved,
        weight = configured,
        health = none,
        slow_start = 0,
        changed = erlang:monotonic_time(millisecond)
    }).

%% @doc Applies a configuration that may have changed. What an operator has set stays, but a weight only if the
%% configured weight is the same.
-spec change(weir_proxy_config:server(), weir_proxy_config:backend(), member()) -> member().
change(Config = #{address := Endpoint, weight := Weight}, Backend, Member = #member{config = Before}) ->
    #{health := Health, slow_start := SlowStart} = Backend,
    Member#member{
        config = Config,
        slow_start = SlowStart,
        latency = measured(Backend, Member#member.latency),
        address = address(Endpoint, Before, Member),
        weight = case Before of #{weight := Weight} -> Member#member.weight; #{} -> configured end,
        health = health(Health, Member#member.health),
        agent = case Backend of #{agent := #{}} -> Member#member.agent; #{} -> #{} end,
        is_up = Health =:= off orelse Member#member.is_up
    }.

measured(#{measure := true}, none) -> weir_relay:new_latency();
measured(#{measure := true}, Latency) -> Latency;
measured(#{}, _Latency) -> none.

address(Endpoint = {name, _, _}, #{address := Endpoint}, #member{address = Address}) -> Address;
address({name, _, _}, _Before, _Member) -> unresolved;
address(Endpoint, _Before, _Member) -> Endpoint.

health(off, _Before) -> none;
health(Options, none) -> weir_proxy_health:new(Options);
health(Options, Before) -> weir_proxy_health:change(Options, Before).

-spec name(member()) -> binary().
name(#member{config = #{name := Name}}) -> Name.

-spec endpoint(member()) -> weir_proxy_address:endpoint().
endpoint(#member{config = #{address := Endpoint}}) -> Endpoint.

%% @doc Returns the address to check: `none' while an operator has disabled the server, or its name has no address.
-spec checked_at(member()) -> weir_tcp:name() | none.
checked_at(#member{admin = maint}) -> none;
checked_at(#member{address = unresolved}) -> none;
checked_at(#member{address = Address}) -> Address.

%% @doc Enables, drains or disables it for an operator.
-spec set_admin(admin(), member()) -> member().
set_admin(Admin, Member = #member{admin = Admin}) -> Member;
set_admin(Admin, Member) -> changed(Member#member{admin = Admin}).

-spec set_weight(0..256, member()) -> member().
set_weight(Weight, Member) -> Member#member{weight = Weight}.

%% @doc Applies the addresses that its name has resolved to. It keeps its address as long as that is among them: DNS
%% servers rotate their answers, and otherwise it would move and restart its checks at each lookup.
-spec resolved([weir_tcp:name(), ...], member()) -> member().
resolved([First | _] = Addresses, Member = #member{address = Address}) ->
    case lists:member(Address, Addresses) of
        true -> Member;
        false -> Member#member{address = First}
    end.

changed(Member) -> Member#member{changed = erlang:monotonic_time(millisecond)}.

%% @doc Applies the result of a check. Returns the change of state that it caused. An error of this machine, such as
%% `emfile', does not count.
-spec checked(ok | {error, term()}, TookMs :: non_neg_integer(), now(), member()) -> {up | down | same, member()}.
checked(_Result, _Took, _Now, Member = #member{health = none}) ->
    {same, Member};
checked(Result, Took, Now, Member = #member{health = Health, checks_failed = Failed}) ->
    IsOurs =
        case Result of
            {error, Reason} -> weir_proxy_health:is_of_this_machine(Reason);
            ok -> false
        end,
    {Change, NewHealth} =
        case IsOurs of
            true -> {same, Health};
            false -> weir_proxy_health:checked(Result =:= ok, Health)
        end,
    Noted = Member#member{
        health = NewHealth,
        last_check = #{result => Result, took_ms => Took},
        checks_failed =
            case Result =:= ok orelse IsOurs of
                true -> Failed;
                false -> Failed + 1
            end
    },
    case Change of
        same -> {same, Noted};
        up -> {up, changed(Noted#member{is_up = true, failing_until = none, rising_since = Now})};
        down -> {down, changed(Noted#member{is_up = false, downs = Noted#member.downs + 1})}
    end.

%% @doc Applies an answer of its agent. Returns `down' if that takes the server down, `up' for any other change.
-spec advised(weir_proxy_agent:answer(), now(), member()) -> {up | down | same, member()}.
advised(Answer, Now, Member = #member{agent = Before}) ->
    case maps:merge(Before, Answer) of
        Before -> {same, Member};
        Agent ->
            Advised = changed(Member#member{agent = Agent}),
            case {is_down(Member), is_down(Advised)} of
                {true, false} -> {up, Advised#member{rising_since = Now}};
                {false, true} -> {down, Advised#member{downs = Advised#member.downs + 1}};
                {_, _} -> {up, Advised}
            end
    end.

is_down(#member{is_up = IsUp, agent = Agent}) -> not IsUp orelse maps:get(is_up, Agent, true) =:= false.

%% @doc Gives it no connections until then, because connections to it fail.
-spec failing(Until :: now(), member()) -> member().
failing(Until, Member) ->
    changed(Member#member{failing_until = Until}).

%% @doc Returns for how many more milliseconds it gets no connections because of {@link failing/2}.
-spec fails_for(now(), member()) -> non_neg_integer().
fails_for(_Now, #member{failing_until = none}) -> 0;
fails_for(Now, #member{failing_until = Until}) -> max(0, Until - Now).

%% @doc Returns its priority and the record for the balancer, or `none' if it takes no connections.
-spec eligible(now(), member()) -> {Priority :: 0..255, #server{}} | none.
eligible(Now, Member = #member{config = #{priority := Priority, max_connections := Configured}, agent = Agent}) ->
    Weight = advised(weight(Member) * fraction(Now, Member), Agent),
    Most = maps:get(max_connections, Agent, Configured),
    case state(Now, Member) of
        up when Weight > 0 ->
            {Priority, #server{
                name = name(Member),
                address = Member#member.address,
                numbers = Member#member.numbers,
                latency = Member#member.latency,
                max_connections = Most,
                weight = Weight
            }};
        _ ->
            none
    end.

%% A percentage above 0 of a weight above 0 is at least one step.
advised(Weight, #{percent := Percent}) when Weight > 0, Percent > 0 -> max(1, Weight * Percent div 100);
advised(_Weight, #{percent := 0}) -> 0;
advised(Weight, _Agent) -> Weight.

weight(#member{weight = configured, config = #{weight := Weight}}) -> Weight;
weight(#member{weight = Weight}) -> Weight.

%% Steps of the slow start by now: at least one, so that it gets a first connection.
fraction(Now, Member = #member{rising_since = Since, slow_start = SlowStart}) ->
    case slow_starting(Now, Member) of
        true -> max(1, ?WEIGHT_STEPS * (Now - Since) div SlowStart);
        false -> ?WEIGHT_STEPS
    end.

%% @doc Returns whether its weight still grows.
-spec slow_starting(now(), member()) -> boolean().
slow_starting(_Now, #member{rising_since = none}) -> false;
slow_starting(Now, #member{rising_since = Since, slow_start = SlowStart}) -> Now - Since < SlowStart.

%% @doc Returns its state.
-spec state(now(), member()) -> up | down | drain | maint | failing | unresolved.
state(_Now, #member{admin = maint}) -> maint;
state(_Now, #member{agent = #{admin := maint}}) -> maint;
state(_Now, #member{is_up = false}) -> down;
state(_Now, #member{agent = #{is_up := false}}) -> down;
state(_Now, #member{admin = drain}) -> drain;
state(_Now, #member{agent = #{admin := drain}}) -> drain;
state(_Now, #member{address = unresolved}) -> unresolved;
state(Now, #member{failing_until = Until}) when Until =/= none, Now < Until -> failing;
state(_Now, #member{}) -> up.

%% @doc Returns its reply times, or `none' if they are not measured.
-spec latency(member()) -> weir_listener:latency() | none.
latency(#member{latency = none}) -> none;
latency(#member{latency = Latency}) -> weir_relay:latency(Latency).

%% @doc Returns its configuration, state and counters, for {@link weir_proxy:servers/2}.
-spec to_map(now(), member()) -> map().
to_map(Now, Member = #member{config = Config}) ->
    #{priority := Priority, max_connections := Most} = Config,
    #{replies := Replies, reply_ns := Time} =
        case latency(Member) of
            none -> #{replies => 0, reply_ns => 0};
            Latency -> Latency
        end,
    (weir_proxy_counters:to_map(Member#member.numbers))#{
        name => name(Member),
        address => weir_proxy_address:to_text(endpoint(Member)),
        state => state(Now, Member),
        weight => weight(Member),
        priority => Priority,
        max_connections => Most,
        state_since_ms => Now - Member#member.changed,
        last_check => Member#member.last_check,
        agent => Member#member.agent,
        replies => Replies,
        reply_ns => Time,
        checks_failed => Member#member.checks_failed,
        downs => Member#member.downs
    }.
