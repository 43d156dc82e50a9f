%% Properties of the balancers and of the parsers of first bytes.
-module(prop_proxy).

-include_lib("proper/include/proper.hrl").
-include("../src/weir_proxy.hrl").

-export([
    prop_schedule/0,
    prop_ring_shares/0,
    prop_ring_movement/0,
    prop_ring_slow_start/0,
    prop_bounded_load/0,
    prop_least_connections/0,
    prop_untried/0,
    prop_hello_in_pieces/0,
    prop_any_bytes/0,
    prop_changed_hello/0
]).
-export([hellos/0, records_of/3]).

weights() -> non_empty(list(range(1, 256))).

%% In a period each server has as many turns as its weight. Between two turns of a server, any other has at most its
%% share plus one.
prop_schedule() ->
    ?FORALL(Weights, resize(12, weights()), begin
        Schedule = tuple_to_list(weir_proxy_schedule:new(Weights)),
        Divisor = lists:foldl(fun gcd/2, 0, Weights),
        Counts = [length([S || S <- Schedule, S =:= N]) || N <- lists:seq(1, length(Weights))],
        Longest = [longest_gap(N, Schedule) || N <- lists:seq(1, length(Weights))],
        Bounds = [lists:sum([1 + ceil(Other / Weight) || Other <- Weights]) || Weight <- Weights],
        Counts =:= [Weight div Divisor || Weight <- Weights] andalso
            lists:all(fun({Gap, Bound}) -> Gap =< Bound end, lists:zip(Longest, Bounds))
    end).

gcd(A, 0) -> A;
gcd(A, B) -> gcd(B, A rem B).

%% The schedule twice, so that gaps across the end of the period count.
longest_gap(N, Schedule) ->
    Places = [Place || {Place, S} <- lists:zip(lists:seq(1, 2 * length(Schedule)), Schedule ++ Schedule), S =:= N],
    lists:max([B - A || {A, B} <- lists:zip(lists:droplast(Places), tl(Places))]).

names(Count) -> [integer_to_binary(N) || N <- lists:seq(1, Count)].

%% Servers of equal weight get equal shares of many keys, within a third.
prop_ring_shares() ->
    ?FORALL(Count, range(2, 10), begin
        Ring = weir_proxy_ring:new([{Name, 1} || Name <- names(Count)]),
        Keys = 500 * Count,
        Owners = [owner({Key, key}, Ring) || Key <- lists:seq(1, Keys)],
        Shares = [length([O || O <- Owners, O =:= N]) || N <- lists:seq(1, Count)],
        lists:all(fun(Share) -> Share > 330 andalso Share < 700 end, Shares)
    end).

owner(Key, Ring) ->
    {Server, _} = weir_proxy_ring:next(weir_proxy_ring:from(Key, Ring), Ring),
    Server.

%% When a server is removed, only its own keys move.
prop_ring_movement() ->
    ?FORALL({Count, Weight}, {range(2, 10), range(1, 5)}, begin
        Names = names(Count),
        Gone = lists:nth(rand:uniform(Count), Names),
        Left = Names -- [Gone],
        [Before, After] = [{weir_proxy_ring:new([{Name, Weight} || Name <- Some]), Some} || Some <- [Names, Left]],
        lists:all(
            fun(Key) ->
                Was = owner_name(Key, Before),
                Was =:= Gone orelse owner_name(Key, After) =:= Was
            end,
            lists:seq(1, 300)
        )
    end).

%% During the slow start of a server, no key moves between the others.
prop_ring_slow_start() ->
    ?FORALL({Count, Step}, {range(2, 200), range(1, 15)}, begin
        [Starting | Others] = Names = names(Count),
        [Before, After] = [
            weir_proxy_ring:new([{Starting, Weight} | [{Name, 1} || Name <- Others]])
         || Weight <- [Step / 16, 1]
        ],
        lists:all(
            fun(Key) ->
                Is = owner_name(Key, {After, Names}),
                Is =:= Starting orelse owner_name(Key, {Before, Names}) =:= Is
            end,
            lists:seq(1, 300)
        )
    end).

owner_name(Key, {Ring, Names}) -> lists:nth(owner(Key, Ring), Names).

servers(Weights) ->
    [
        #server{name = integer_to_binary(N), address = unresolved, numbers = weir_proxy_counters:new(), weight = Weight}
     || {N, Weight} <- lists:zip(lists:seq(1, length(Weights)), Weights)
    ].

%% With any keys, no server gets more than its bound plus one.
prop_bounded_load() ->
    ?FORALL({Weights, Keys}, {resize(8, non_empty(list(range(1, 8)))), list(range(1, 3))}, begin
        Servers = servers(Weights),
        Balancer = weir_proxy_balancer:new(hash, Servers, 125),
        _ = [
            begin
                {ok, #server{numbers = Numbers}} = weir_proxy_balancer:choose(Balancer, Key, []),
                weir_proxy_counters:begun(Numbers)
            end
         || Key <- Keys
        ],
        All = length(Keys),
        Sum = lists:sum(Weights),
        length(Weights) =:= 1 orelse
            lists:all(
                fun(#server{numbers = Numbers, weight = Weight}) ->
                    weir_proxy_counters:get(Numbers, current_sessions) =< ceil(1.25 * All * Weight / Sum)
                end,
                Servers
            )
    end).

%% With connections that stay, least_connections follows the weights within one.
prop_least_connections() ->
    ?FORALL({Weights, Rounds}, {resize(8, non_empty(list(range(1, 8)))), range(1, 10)}, begin
        Servers = servers(Weights),
        Balancer = weir_proxy_balancer:new(least_connections, Servers, infinity),
        _ = [
            begin
                {ok, #server{numbers = Numbers}} = weir_proxy_balancer:choose(Balancer, none, []),
                weir_proxy_counters:begun(Numbers)
            end
         || _ <- lists:seq(1, Rounds * lists:sum(Weights))
        ],
        lists:all(
            fun(#server{numbers = Numbers, weight = Weight}) ->
                abs(weir_proxy_counters:get(Numbers, current_sessions) - Rounds * Weight) =< 1
            end,
            Servers
        )
    end).

%% With any servers tried, one of the others is chosen, and `none' only if there is no other.
prop_untried() ->
    ?FORALL(
        {Kind, Weights, Tried},
        {oneof([round_robin, least_connections, random, hash]), resize(8, list(range(1, 8))), list(range(1, 10))},
        begin
            Servers = servers(Weights),
            Names = [integer_to_binary(N) || N <- Tried],
            Others = [Name || #server{name = Name} <- Servers, not lists:member(Name, Names)],
            case weir_proxy_balancer:choose(weir_proxy_balancer:new(Kind, Servers, 125), key, Names) of
                none -> Others =:= [];
                {ok, #server{name = Name}} -> lists:member(Name, Others)
            end
        end
    ).

%% A hello is parsed from records of any sizes, and each beginning of it returns `more'. `needed' is more than the
%% bytes so far, and never more than suffice.
prop_hello_in_pieces() ->
    ?FORALL({Sizes, Cut}, {non_empty(list(range(1, 200))), range(1, 100_000)}, begin
        <<22, 3, 1, _:16, Message/binary>> = weir_proxy_hello:build(<<"One.Example.org">>),
        Records = records(Message, Sizes, Sizes),
        Part = binary:part(Records, 0, Cut rem byte_size(Records)),
        weir_proxy_client_hello:parse(Records) =:= {ok, #{sni => <<"one.example.org">>}} andalso
            weir_proxy_client_hello:parse(Part) =:= more andalso
            weir_proxy_client_hello:needed(Part) > byte_size(Part) andalso
            weir_proxy_client_hello:needed(Part) =< byte_size(Records)
    end).

records(<<>>, _Sizes, _All) -> <<>>;
records(Message, [], All) -> records(Message, All, All);
records(Message, [Size | Sizes], All) ->
    Taken = min(Size, byte_size(Message)),
    <<Piece:Taken/binary, Rest/binary>> = Message,
    <<22, 3, 1, Taken:16, Piece/binary, (records(Rest, Sizes, All))/binary>>.

%% Any bytes have an answer. After one other than `more', every longer input has the same.
prop_any_bytes() ->
    ?FORALL(
        {Start, Bytes},
        {
            oneof([
                <<>>,
                <<22, 3, 1>>,
                <<22, 3, 1, 0, 80, 1, 0, 0, 76, 3, 3>>,
                <<"GET / HTTP/1.1\r\nHost: ">>,
                <<0, 0, 0, 30, 0, 3, 0, 0>>,
                <<"*2\r\n$">>
            ]),
            binary()
        },
        begin
            All = <<Start/binary, Bytes/binary>>,
            Answers = [
                weir_proxy_first_bytes:classify(binary:part(All, 0, Size))
             || Size <- lists:seq(0, byte_size(All))
            ],
            Decided = lists:dropwhile(fun(Answer) -> Answer =:= more end, Answers),
            lists:all(
                fun
                    ({ok, #{protocol := _}}) -> true;
                    (_) -> false
                end,
                Decided
            ) andalso length(lists:usort(Decided)) =< 1
        end
    ).

%% The same for hellos of real clients with some bytes changed, removed or inserted: a decision stays, the sizes of
%% records do not matter, and a name has only characters that are allowed in names.
prop_changed_hello() ->
    ?FORALL(
        {Hello, Changes, Size},
        {oneof([Hello || {_, Hello} <- hellos()]), resize(6, list(change())), range(1, 300)},
        begin
            <<22, 3, Minor, _:16, Message/binary>> = Hello,
            Changed = lists:foldl(fun change/2, Message, Changes),
            Whole = records_of(byte_size(Changed), Minor, Changed),
            Answer = weir_proxy_client_hello:parse(Whole),
            Sizes = lists:seq(1, byte_size(Whole), 1 + byte_size(Whole) div 100),
            Parts = [weir_proxy_client_hello:parse(binary:part(Whole, 0, Part)) || Part <- Sizes],
            Decided = lists:usort(lists:dropwhile(fun(Each) -> Each =:= more end, Parts) ++ [Answer]),
            is_answer(Answer) andalso
                length(Decided) =:= 1 andalso
                weir_proxy_client_hello:parse(records_of(Size, Minor, Changed)) =:= Answer
        end
    ).

is_answer({ok, #{sni := Name}}) -> re:run(Name, "^[a-z0-9._-]{1,255}$", [{capture, none}, dollar_endonly]) =:= match;
is_answer({ok, #{}}) -> true;
is_answer(more) -> true;
is_answer({error, Reason}) -> lists:member(Reason, [bad_hello, not_tls]).

change() ->
    oneof([
        {set, range(0, 100_000), byte()},
        {flip, range(0, 100_000), range(0, 7)},
        {cut, range(0, 100_000), range(1, 40)},
        {add, range(0, 100_000), resize(20, binary())},
        {length, range(0, 100_000), oneof([0, 1, 16#7f, 16#ff])}
    ]).

change(_, <<>>) -> <<>>;
change({set, Place, Byte}, Bytes) -> at(Place, 1, Bytes, fun(_) -> <<Byte>> end);
change({flip, Place, Bit}, Bytes) -> at(Place, 1, Bytes, fun(<<Byte>>) -> <<(Byte bxor (1 bsl Bit))>> end);
change({cut, Place, Size}, Bytes) -> at(Place, Size, Bytes, fun(_) -> <<>> end);
change({add, Place, More}, Bytes) -> at(Place, 0, Bytes, fun(_) -> More end);
%% Near the beginning, where the lengths are.
change({length, Place, Byte}, Bytes) -> change({set, Place rem 60, Byte}, Bytes).

at(Place, Size, Bytes, Fun) ->
    Front = Place rem byte_size(Bytes),
    Taken = min(Size, byte_size(Bytes) - Front),
    <<Before:Front/binary, Piece:Taken/binary, After/binary>> = Bytes,
    <<Before/binary, (Fun(Piece))/binary, After/binary>>.

records_of(Size, Minor, Message) when byte_size(Message) > Size ->
    <<Piece:Size/binary, Rest/binary>> = Message,
    <<22, 3, Minor, Size:16, Piece/binary, (records_of(Size, Minor, Rest))/binary>>;
records_of(_Size, Minor, Message) ->
    <<22, 3, Minor, (byte_size(Message)):16, Message/binary>>.

%% Recorded hellos of clients for one.example.org. The script `record' in the same folder writes them.
hellos() ->
    Directory = filename:join(filename:dirname(code:which(?MODULE)), "weir_proxy_property_SUITE_data"),
    Clients = ["curl", "openssl", "chromium", "go", "rustls"],
    [begin {ok, Hello} = file:read_file(filename:join(Directory, Client)), {Client, Hello} end || Client <- Clients].
