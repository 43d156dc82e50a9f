%% @doc Who may do what in which channels: rules by pattern. The first that matches applies.
%%
%% For each right of {@link weir_pubsub_access:right()} a rule says who has it: `any'; `local': clients on this
%% machine, but no web page; `token': clients whose token grants it, see {@link weir_pubsub_access}; `ask': clients
%% for which a server says so, see {@link weir_pubsub_authorizer}; `nobody'. A right that a rule does not name is as in
%% the rule for all channels. The defaults of that: `any' may subscribe and read the history, `local' may publish and
%% see the subscribers.
-module(weir_pubsub_rules).

-export([new/2]).
-export([allows/5]).

-export_type([rules/0, may/0, who/0]).

-type who() :: any | local | token | ask | nobody.

-type may() :: #{weir_pubsub_access:right() => who()}.

-record(rules, {
    rules :: [{weir_pubsub_pattern:pattern(), may()}],
    all :: may()
}).

-opaque rules() :: #rules{}.

-define(DEFAULTS, #{publish => local, subscribe => any, history => any, presence => local}).

%% @doc Makes rules: one for all channels, and one for each pattern.
-spec new(may(), [{Pattern :: binary(), may()}]) -> rules().
new(May, Rules) ->
    All = maps:merge(?DEFAULTS, May),
    #rules{rules = [{weir_pubsub_pattern:new(Pattern), maps:merge(All, Own)} || {Pattern, Own} <- Rules], all = All}.

%% @doc Whether a request has a right in a channel, or a fun that waits for the answer. `ByToken' decides if a token
%% is needed.
-spec allows(weir_pubsub_access:right(), weir_http_request:request(), weir_pubsub:channel(), rules(), ByToken) ->
    weir_pubsub_access:verdict()
when
    ByToken :: fun((weir_http_request:request(), weir_pubsub:channel()) -> boolean()).
allows(Right, Request, Channel, #rules{rules = Rules, all = All}, ByToken) ->
    #{Right := Who} = first(Channel, Rules, All),
    case Who of
        any -> true;
        local -> weir_pubsub_access:is_local(Request);
        token -> ByToken(Request, Channel);
        ask -> ask(weir_pubsub_authorizer:question(Right, Request, Channel));
        nobody -> false
    end.

ask(Question) ->
    case weir_pubsub_authorizer:known(Question) of
        {ok, IsAllowed} -> IsAllowed;
        unknown -> {wait, fun() -> weir_pubsub_authorizer:allows(Question) end}
    end.

first(Channel, [{Pattern, May} | Rules], All) ->
    case weir_pubsub_pattern:fits(Channel, Pattern) of
        true -> May;
        false -> first(Channel, Rules, All)
    end;
first(_Channel, [], All) ->
    All.
