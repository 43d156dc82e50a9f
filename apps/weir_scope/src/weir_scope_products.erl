%% @doc What `weir_http' and `weir_pubsub' count, where they run. Their own tables on the node tell the names, so this needs neither of them.
-module(weir_scope_products).

-export([read/2]).
-export([between/3]).

-export_type([reading/0, counter/0]).

-opaque reading() :: [#{name := binary(), help := binary(), values := [#{listener => term(), total := non_neg_integer()}]}].

-type counter() :: #{name := binary(), help := binary(), values := [#{listener => term(), total := non_neg_integer(), rate := float()}]}.
%% As in `weir_http_requests'. `total': since the listener or the application was started, `rate': a second. `listener' where each listener counts.

%% @doc Of listeners with what they tell of themselves.
-spec read(weir_scope_facts:ask(), [{term(), map()}]) -> reading().
read(Ask, Listeners) ->
    try
        http(Ask, [Listener || {_, #{requests := _}} = Listener <- Listeners]) ++ pubsub(Ask)
    catch
        %% One of them is being stopped.
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
            [counter("weir_pubsub_", Row, [#{total => maps:get(Counter, Totals)}]) || #{name := Counter} = Row <- Ask(weir_pubsub_counters, table, [])]
    end.

counter(Prefix, #{name := Name, help := Help}, Values) ->
    #{name => iolist_to_binary([Prefix, atom_to_binary(Name)]), help => unicode:characters_to_binary(Help), values => Values}.

%% @doc What has happened between two readings that are so many nanoseconds apart.
-spec between(reading(), reading(), pos_integer()) -> [counter()].
between(Before, After, Ns) ->
    Earlier = maps:from_list([{key(Name, Value), Total} || #{name := Name, values := Values} <- Before, #{total := Total} = Value <- Values]),
    [
        Counter#{values := [Value#{rate => rate(maps:get(key(Name, Value), Earlier, Total), Total, Ns)} || #{total := Total} = Value <- Values]}
     || #{name := Name, values := Values} = Counter <- After
    ].

key(Name, #{listener := Listener}) -> {Name, Listener};
key(Name, _) -> Name.

%% One that was started anew counts from zero.
rate(Before, Now, Ns) when Now >= Before -> (Now - Before) * 1_000_000_000 / Ns;
rate(_Before, Now, Ns) -> Now * 1_000_000_000 / Ns.
