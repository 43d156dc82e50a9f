%% @doc Chooses a server. A value that is made when servers change, and read by every connection; only the counts in the
%% servers' numbers change meanwhile.
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
    %% Those that take connections now, all of one priority.
    servers :: tuple(),
    schedule :: weir_proxy_schedule:schedule() | none,
    ring :: weir_proxy_ring:ring() | none,
    weights :: non_neg_integer(),
    %% Percent of its share that a server may have of all connections.
    load :: pos_integer() | infinity,
    %% Counts the turns of the round.
    turn :: atomics:atomics_ref()
}).

-opaque balancer() :: #balancer{}.

%% @doc The balancer of these servers, which may be none. With `hash' no server gets more than `Load' percent of its share.
-spec new(kind(), [#server{}], Load :: pos_integer() | infinity) -> balancer().
new(Kind, Servers, Load) ->
    Weights = [Weight || #server{weight = Weight} <- Servers],
    Turn = atomics:new(1, [{signed, false}]),
    %% Several machines, or one whose servers change often, should not all begin with the same server.
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

%% @doc The same in place of another one, which stays if it is of the same servers: to publish an equal term costs nothing.
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

%% @doc One of them by its name.
-spec find(balancer(), binary()) -> {ok, #server{}} | none.
find(#balancer{servers = Servers}, Name) ->
    case lists:keyfind(Name, #server.name, tuple_to_list(Servers)) of
        false -> none;
        Server -> {ok, Server}
    end.

%% @doc A server for a connection with a key, but none of those that were tried already.
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

%% @doc The same, and takes a place at it. `full' if no server has one, `none' if there is no server.
-spec take(balancer(), Key :: term(), Tried :: [binary()]) -> {ok, #server{}} | full | none.
take(Balancer, Key, Tried) -> take(Balancer, Key, Tried, none).

take(Balancer, Key, Passed, Otherwise) ->
    case choose(Balancer, Key, Passed) of
        {ok, Server = #server{name = Name, numbers = Numbers, max_connections = Most}} ->
            case weir_proxy_numbers:take(Numbers, Most) of
                true -> {ok, Server};
                false -> take(Balancer, Key, [Name | Passed], full)
            end;
        none ->
            Otherwise
    end.

%% A number that wraps around in five hundred thousand years of a million a second.
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

%% Which of equals comes first changes from one choice to the next.
candidates(First, Servers, Tried) ->
    Size = tuple_size(Servers),
    All = [element((First + Place) rem Size + 1, Servers) || Place <- lists:seq(1, Size)],
    [Server || Server <- All, not is_tried(Server, Tried)].

%% The one that would have the fewest connections for its weight.
least([]) -> none;
least([First | Others]) -> least(Others, First, load(First)).

least([], Server, _Load) -> {ok, Server};
least([Server | Others], Best, Least) ->
    case load(Server) of
        Load when Load < Least -> least(Others, Server, Load);
        _ -> least(Others, Best, Least)
    end.

load(#server{numbers = Numbers, weight = Weight}) ->
    (weir_proxy_numbers:get(Numbers, current_sessions) + 1) / Weight.

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

%% Goes round until there is one that was not tried and has less than its bound. Where all have, the first decides.
hash(Place, Balancer = #balancer{servers = Servers}, Tried) ->
    Left = length([Server || Server <- tuple_to_list(Servers), not is_tried(Server, Tried)]),
    hash(Place, Balancer, bound(Balancer), Tried, Left, none).

hash(_Place, _Balancer, _Bound, _Passed, 0, none) ->
    none;
hash(_Place, _Balancer, _Bound, _Passed, 0, First) ->
    {ok, First};
hash(Place, Balancer = #balancer{servers = Servers, ring = Ring}, Bound, Passed, Left, First) ->
    %% Every server has a point, so this comes to the one that is left.
    {Number, Next} = weir_proxy_ring:next(Place, Ring),
    Server = element(Number, Servers),
    case {is_tried(Server, Passed), is_below(Server, Bound)} of
        {true, _} -> hash(Next, Balancer, Bound, Passed, Left, First);
        {false, true} -> {ok, Server};
        {false, false} -> hash(Next, Balancer, Bound, [Server#server.name | Passed], Left - 1, first(First, Server))
    end.

first(none, Server) -> Server;
first(First, _Server) -> First.

%% Connections for a unit of weight.
bound(#balancer{load = infinity}) ->
    infinity;
bound(#balancer{load = Percent, weights = Weights, servers = Servers}) ->
    All = lists:sum([weir_proxy_numbers:get(Numbers, current_sessions) || #server{numbers = Numbers} <- tuple_to_list(Servers)]),
    Percent * (All + 1) / (100 * Weights).

is_below(_Server, infinity) -> true;
is_below(#server{numbers = Numbers, weight = Weight}, Bound) ->
    weir_proxy_numbers:get(Numbers, current_sessions) < ceil(Bound * Weight).
