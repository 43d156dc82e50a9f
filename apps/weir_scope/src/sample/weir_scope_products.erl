%% @doc Samples the counters of `weir_http' and `weir_pubsub', if they run. It reads names and help from their tables
%% on the node, so this node needs neither application.
-module(weir_scope_products).

-export([read/2]).
-export([between/3]).

-export_type([reading/0, counter/0]).

-opaque reading() :: [
    #{name := binary(), help := binary(), values := [#{listener => term(), total := non_neg_integer()}]}
].

-type counter() :: #{
    name := binary(), help := binary(), values := [#{listener => term(), total := non_neg_integer(), rate := float()}]
}.
%% `name': such as `weir_http_requests'. `total': since the start of the listener or application. `rate': per second.
%% `listener': only for counters of a listener.

%% @doc Reads the counters. `Listeners' are the names and infos of all listeners.
-spec read(weir_scope_facts:ask(), [{term(), map()}]) -> reading().
read(Ask, Listeners) ->
    try
        http(Ask, [Listener || {_, #{requests := _}} = Listener <- Listeners]) ++ pubsub(Ask)
    catch
        %% One of the applications is being stopped.
        _:_ -> []
    end.

http(_Ask, []) ->
    [];
http(Ask, Listeners) ->
    [
        counter("weir_http_", Row, [#{listener => Name, total => Total} || {Name, #{Counter := Total}} <- Listeners])
     || #{name := Counter} = Row <- Ask(weir_http_counters, table, [])
    ].

pubsub(Ask) ->
    case Ask(erlang, whereis, [weir_pubsub_sup]) of
        undefined ->
            [];
        _ ->
            Totals = Ask(weir_pubsub, counters, []),
            [
                counter("weir_pubsub_", Row, [#{total => maps:get(Counter, Totals)}])
             || #{name := Counter} = Row <- Ask(weir_pubsub_counters, table, [])
            ]
    end.

counter(Prefix, #{name := Name, help := Help}, Values) ->
    #{
        name => iolist_to_binary([Prefix, atom_to_binary(Name)]),
        help => unicode:characters_to_binary(Help),
        values => Values
    }.

%% @doc Returns the counters of the later reading with their rates. The readings are `Ns' nanoseconds apart.
-spec between(reading(), reading(), pos_integer()) -> [counter()].
between(Before, After, Ns) ->
    Earlier = maps:from_list([
        {key(Name, Value), Total}
     || #{name := Name, values := Values} <- Before, #{total := Total} = Value <- Values
    ]),
    [
        Counter#{
            values := [
                Value#{rate => rate(maps:get(key(Name, Value), Earlier, Total), Total, Ns)}
             || #{total := Total} = Value <- Values
            ]
        }
     || #{name := Name, values := Values} = Counter <- After
    ].

key(Name, #{listener := Listener}) -> {Name, Listener};
key(Name, _) -> Name.

%% A restarted listener or application counts from zero.
rate(Before, Now, Ns) when Now >= Before -> (Now - Before) * 1_000_000_000 / Ns;
rate(_Before, Now, Ns) -> Now * 1_000_000_000 / Ns.
