%% @doc Chooses a server. A balancer is immutable: it is made when servers change and read by every connection. Only
%% the counters of the servers change.
-module(weir_proxy_balancer).

-include("weir_proxy.hrl").

-export([new/3]).
-export([renew/4]).
-export([choose/3]).
-export([take/3]).
-export([find/2]).

-export_type([balancer/0, kind/0]).

-type kind() :: round_robin | least_connections | random | hash.

-record(balancer, {
    kind :: kind(),
    %% The servers that take connections, all of one priority.
    servers :: tuple(),
    schedule :: weir_proxy_schedule:schedule() | none,
    ring :: weir_proxy_ring:ring() | none,
    weights :: non_neg_integer(),
    %% Most connections of a server, in percent of its share.
    load :: pos_integer() | infinity,
    %% Counts the turns of the round.
    turn :: atomics:atomics_ref()
}).

-opaque balancer() :: #balancer{}.

%% @doc Returns a balancer of these servers; the list may be empty. With `hash', a server gets at most `Load' percent
%% of its share.
-spec new(kind(), [#server{}], Load :: pos_integer() | infinity) -> balancer().
new(Kind, Servers, Load) ->
    Weights = [Weight || #server{weight = Weight} <- Servers],
    Turn = atomics:new(1, [{signed, false}]),
    %% Begin anywhere: otherwise the first server gets more if several machines balance, or servers change often.
    ok = atomics:put(Turn, 1, rand:uniform(16#ffff)),
    #balancer{
        kind = Kind,
        servers = list_to_tuple(Servers),
        schedule = schedule(Kind, Weights),
        ring = ring(Kind, Servers),
        weights = lists:sum(Weights),
        load = Load,
        turn = Turn
    }.

%% @doc Returns `Before' if it has the same servers, otherwise a new balancer. Publishing an equal persistent term
%% costs nothing.
-spec renew(kind(), [#server{}], Load :: pos_integer() | infinity, Before :: balancer() | none) -> balancer().
renew(Kind, Servers, Load, Before = #balancer{kind = Kind, load = Load, servers = Known}) ->
    case list_to_tuple(Servers) of
        Known -> Before;
        _ -> new(Kind, Servers, Load)
    end;
renew(Kind, Servers, Load, _Before) ->
    new(Kind, Servers, Load).

schedule(_Kind, []) -> none;
schedule(hash, _Weights) -> none;
schedule(_Kind, Weights) -> weir_proxy_schedule:new(Weights).

ring(hash, [_ | _] = Servers) ->
    weir_proxy_ring:new([{Name, Weight / ?WEIGHT_STEPS} || #server{name = Name, weight = Weight} <- Servers]);
ring(_Kind, _Servers) ->
    none.

%% @doc Finds a server by its name.
-spec find(balancer(), binary()) -> {ok, #server{}} | none.
find(#balancer{servers = Servers}, Name) ->
    case lists:keyfind(Name, #server.name, tuple_to_list(Servers)) of
        false -> none;
        Server -> {ok, Server}
    end.

%% @doc Chooses a server for a connection with this key, other than those in `Tried'.
-spec choose(balancer(), Key :: term(), Tried :: [binary()]) -> {ok, #server{}} | none.
choose(#balancer{servers = {}}, _Key, _Tried) ->
    none;
choose(#balancer{servers = {Only = #server{name = Name}}}, _Key, Tried) ->
    case lists:member(Name, Tried) of
        true -> none;
        false -> {ok, Only}
    end;
choose(Balancer = #balancer{kind = round_robin, schedule = Schedule}, _Key, Tried) ->
    round_robin(turn(Balancer), tuple_size(Schedule), Balancer, Tried);
choose(Balancer = #balancer{kind = least_connections, servers = Servers}, _Key, Tried) ->
    First = turn(Balancer) rem tuple_size(Servers),
    least(candidates(First, Servers, Tried));
choose(Balancer = #balancer{kind = random}, _Key, Tried) ->
    case {any(Balancer, Tried), any(Balancer, Tried)} of
        {none, _} -> none;
        {Server, Other} -> least([Server, Other])
    end;
choose(Balancer = #balancer{kind = hash, ring = Ring}, Key, Tried) ->
    hash(weir_proxy_ring:from(Key, Ring), Balancer, Tried).

%% @doc Chooses a server and takes a place there. Returns `full' if all servers are full, `none' if there is no server.
-spec take(balancer(), Key :: term(), Tried :: [binary()]) -> {ok, #server{}} | full | none.
take(Balancer, Key, Tried) -> take(Balancer, Key, Tried, none).

take(Balancer, Key, Passed, Otherwise) ->
    case choose(Balancer, Key, Passed) of
        {ok, Server = #server{name = Name, numbers = Numbers, max_connections = Most}} ->
            case weir_proxy_counters:take(Numbers, Most) of
                true -> {ok, Server};
                false -> take(Balancer, Key, [Name | Passed], full)
            end;
        none ->
            Otherwise
    end.

%% Unsigned, 64 bits: at a million connections per second it wraps around after 500,000 years.
turn(#balancer{turn = Turn}) -> atomics:add_get(Turn, 1, 1).

round_robin(_Turn, 0, _Balancer, _Tried) ->
    none;
round_robin(Turn, Left, Balancer = #balancer{schedule = Schedule, servers = Servers}, Tried) ->
    Server = element(weir_proxy_schedule:at(Turn, Schedule), Servers),
    case is_tried(Server, Tried) of
        false -> {ok, Server};
        true -> round_robin(Turn + 1, Left - 1, Balancer, Tried)
    end.

is_tried(_Server, []) -> false;
is_tried(#server{name = Name}, Tried) -> lists:member(Name, Tried).

%% Begins at First, so that ties go to a different server each time.
candidates(First, Servers, Tried) ->
    Size = tuple_size(Servers),
    All = [element((First + Place) rem Size + 1, Servers) || Place <- lists:seq(1, Size)],
    [Server || Server <- All, not is_tried(Server, Tried)].

%% The server with the fewest connections for its weight, including this one.
least([]) -> none;
least([First | Others]) -> least(Others, First, load(First)).

least([], Server, _Load) -> {ok, Server};
least([Server | Others], Best, Least) ->
    case load(Server) of
        Load when Load < Least -> least(Others, Server, Load);
        _ -> least(Others, Best, Least)
    end.

load(#server{numbers = Numbers, weight = Weight}) ->
    (weir_proxy_counters:get(Numbers, current_sessions) + 1) / Weight.

any(#balancer{schedule = Schedule, servers = Servers}, Tried) ->
    Size = tuple_size(Schedule),
    Server = element(weir_proxy_schedule:at(rand:uniform(Size), Schedule), Servers),
    case is_tried(Server, Tried) of
        false ->
            Server;
        true ->
            case candidates(0, Servers, Tried) of
                [] -> none;
                Others -> lists:nth(rand:uniform(length(Others)), Others)
            end
    end.

%% Goes round the ring to the first server that was not tried and is below its bound. If all are at their bound, takes
%% the first that was not tried.
hash(Place, Balancer = #balancer{servers = Servers}, Tried) ->
    Left = length([Server || Server <- tuple_to_list(Servers), not is_tried(Server, Tried)]),
    hash(Place, Balancer, bound(Balancer), Tried, Left, none).

hash(_Place, _Balancer, _Bound, _Passed, 0, none) ->
    none;
hash(_Place, _Balancer, _Bound, _Passed, 0, First) ->
    {ok, First};
hash(Place, Balancer = #balancer{servers = Servers, ring = Ring}, Bound, Passed, Left, First) ->
    %% This ends: every server has a point on the ring.
    {Number, Next} = weir_proxy_ring:next(Place, Ring),
    Server = element(Number, Servers),
    case {is_tried(Server, Passed), is_below(Server, Bound)} of
        {true, _} -> hash(Next, Balancer, Bound, Passed, Left, First);
        {false, true} -> {ok, Server};
        {false, false} -> hash(Next, Balancer, Bound, [Server#server.name | Passed], Left - 1, first(First, Server))
    end.

first(none, Server) -> Server;
first(First, _Server) -> First.

%% Most connections per unit of weight.
bound(#balancer{load = infinity}) ->
    infinity;
bound(#balancer{load = Percent, weights = Weights, servers = Servers}) ->
    All = lists:sum([
        weir_proxy_counters:get(Numbers, current_sessions)
     || #server{numbers = Numbers} <- tuple_to_list(Servers)
    ]),
    Percent * (All + 1) / (100 * Weights).

is_below(_Server, infinity) -> true;
is_below(#server{numbers = Numbers, weight = Weight}, Bound) ->
    weir_proxy_counters:get(Numbers, current_sessions) < ceil(Bound * Weight).
