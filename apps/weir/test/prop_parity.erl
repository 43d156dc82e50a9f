%% The law of the drop-in: a sequence of operations gives the same results and messages, in the same order, on two
%% backends.
-module(prop_parity).

-include_lib("proper/include/proper.hrl").

-export([search/3, repeat/3, agree/3, observe_both/3]).

%% A difference counts only if it occurs again each time with longer waits: on a busy machine an expected event may
%% come after a wait has expired.
-define(PATIENCE, [1, 5, 25, 25]).
-define(PATIENT, [5, 25, 25]).

%% Number of concurrent searches.
-define(SEARCHERS, 8).

%% Size of the sequences of repeat/3, as large as those of a search.
-define(SIZE, 42).

%% Tries this many sequences, several at a time because they mostly wait. Returns the differences: shrunk sequences
%% and what differs.
-spec search([gen_tcp:option()], [gen_tcp:option()], pos_integer()) -> [{parity_sequence:sequence(), term()}].
search(One, Other, Sequences) ->
    Options = [{numtests, Sequences div ?SEARCHERS}, long_result, quiet],
    Caller = self(),
    Searchers = [
        spawn_monitor(fun() -> exit({searched, proper:quickcheck(prop_agree(One, Other, Caller), Options)}) end)
     || _ <- lists:seq(1, ?SEARCHERS)
    ],
    lists:append([found(Searcher, none, One, Other) || Searcher <- Searchers]).

%% PropEr's shrinking may itself fail. Then the shortest sequence so far is reported.
found(Searcher = {Pid, Monitor}, Shortest, One, Other) ->
    receive
        {differs, Pid, Sequence} -> found(Searcher, Sequence, One, Other);
        {'DOWN', Monitor, process, Pid, {searched, true}} -> [];
        {'DOWN', Monitor, process, Pid, {searched, [Sequence]}} -> [{Sequence, agree(Sequence, One, Other)}];
        {'DOWN', Monitor, process, Pid, Reason} when Shortest =:= none -> [{no_sequence, Reason}];
        {'DOWN', Monitor, process, Pid, _Reason} -> [{Shortest, agree(Shortest, One, Other)}]
    end.

%% The property for two backends, each given by its options.
prop_agree(One, Other, Caller) ->
    ?FORALL(
        Sequence,
        parity_sequence:sequence(),
        agree(Sequence, One, Other) =:= true orelse
            begin
                Caller ! {differs, self(), Sequence},
                false
            end
    ).

%% Runs this many sequences, the same each time, several at a time. Returns those that differ, without shrinking.
-spec repeat([gen_tcp:option()], [gen_tcp:option()], pos_integer()) -> [{parity_sequence:sequence(), term()}].
repeat(One, Other, Sequences) ->
    Repeaters = [
        spawn_monitor(fun() -> exit({repeated, repeat(One, Other, First, Sequences)}) end)
     || First <- lists:seq(1, ?SEARCHERS)
    ],
    lists:append([
        receive
            {'DOWN', Monitor, process, Pid, {repeated, Differing}} -> Differing;
            {'DOWN', Monitor, process, Pid, Reason} -> [{no_sequence, Reason}]
        end
     || {Pid, Monitor} <- Repeaters
    ]).

repeat(One, Other, First, Last) ->
    [
        {Sequence, Result}
     || Seed <- lists:seq(First, Last, ?SEARCHERS),
        {ok, Sequence} <- [proper_gen:pick(parity_sequence:sequence(), 1 + Seed rem ?SIZE, {0, 0, Seed})],
        (Result = agree(Sequence, One, Other)) =/= true
    ].

%% Whether the observations on both backends are equal; if not, the first step that differs and both observations.
-spec agree(parity_sequence:sequence(), [gen_tcp:option()], [gen_tcp:option()]) -> true | {differ, term(), term()}.
agree(Sequence, One, Other) ->
    agree(Sequence, One, Other, ?PATIENCE).

agree(Sequence, One, Other, [Patience | More]) ->
    case compare(Sequence, One, Other, Patience) of
        {differ, _, _} when More =/= [] -> agree(Sequence, One, Other, More);
        Result -> Result
    end.

%% The observations on both backends. If they differ, they are repeated with longer waits.
-spec observe_both(parity_sequence:sequence(), [gen_tcp:option()], [gen_tcp:option()]) -> {term(), term()}.
observe_both(Sequence, One, Other) ->
    observe_both(Sequence, One, Other, ?PATIENT).

observe_both(Sequence, One, Other, [Patience | More]) ->
    case {parity_session:observe(Sequence, One, Patience), parity_session:observe(Sequence, Other, Patience)} of
        {Seen, Seen} -> {Seen, Seen};
        _ when More =/= [] -> observe_both(Sequence, One, Other, More);
        Different -> Different
    end.

compare(Sequence = {_, Options, _}, One, Other, Patience) ->
    first_difference(
        parity_session:observe(Sequence, One, Patience),
        parity_session:observe(Sequence, Other, Patience),
        [{{opening, Options}, [], []}]
    ).

first_difference(Same, Same, _Before) ->
    true;
first_difference([Same | One], [Same | Other], Before) ->
    first_difference(One, Other, [Same | Before]);
first_difference([One | _], [Other | _], Before) ->
    is_known(One, Other, Before) orelse {differ, One, Other};
first_difference(One, Other, _Before) ->
    {differ, One, Other}.

%% Differences that only the observation shows, each a row of docs/differences.md. Later steps are not compared.
is_known({_, [One | _], _}, {_, [Other | _], _}, _Before) when (One =:= passed_over) =/= (Other =:= passed_over) ->
    %% "the packet type changes after half a packet was read": how much of it is read.
    true;
is_known(One, Other, Before) ->
    %% "bytes after a bad packet"
    lists:any(fun has_bad_packet/1, Before) orelse is_known_step(One, Other, Before).

is_known_step({Step, Results, One}, {Step, Results, Other}, Before) ->
    IsCut = is_cut([{Step, Results, One} | Before]),
    Pairs = [{M, N} || {{Name, M}, {Name, N}} <- lists:zip(One, Other)],
    case lists:any(fun is_early_end/1, Pairs) of
        true ->
            %% `DOWN' messages of the socket's monitors also come early.
            lists:all(fun(Pair = {M, N}) -> is_early_end(Pair) orelse without_down(M) =:= without_down(N) end, Pairs);
        false ->
            lists:all(fun({M, N}) -> M =:= N orelse (IsCut andalso is_recut(whole(M), whole(N))) end, Pairs)
    end;
is_known_step(Observed = {Step, One, Same}, {Step, Other, Same}, Before) ->
    case Step of
        {Name, _} when Name =/= peer ->
            is_cut([Observed | Before]) andalso is_known_result(lists:last(One), lists:last(Other));
        _ ->
            %% "the peer of a socket with packets that closes"
            lists:any(fun has_packets/1, Before) andalso is_same_data(One, Other)
    end;
is_known_step(_, _, _) ->
    false.

has_bad_packet({opened, _, _}) ->
    false;
has_bad_packet({_Step, Results, Mailboxes}) ->
    lists:member({error, emsgsize}, Results) orelse
        lists:any(fun(Name) -> lists:member({Name, {error, emsgsize}}, Results) end, [a, b, c]) orelse
        lists:any(fun({_Name, Mailbox}) -> lists:member({tcp_error, socket, emsgsize}, Mailbox) end, Mailboxes).

%% "an invalid or too long packet right after a good one"
is_early_end({One, Other}) ->
    {Before, Ended} = {without_down(One), without_down(Other)},
    Ended =:= Before ++ [{tcp_error, socket, emsgsize}, {tcp_closed, socket}] orelse
        Ended =:= Before ++ [{tcp_error, socket, emsgsize}].

without_down(Mailbox) ->
    [Message || Message <- Mailbox, Message =/= {'DOWN', socket}].

is_recut([Same | One], [Same | Other]) ->
    is_recut(One, Other);
is_recut([{tcp, socket, One} | _], [{tcp, socket, Other} | _]) ->
    is_beginning(One, Other) orelse is_beginning(Other, One);
is_recut(One, Other) ->
    One =:= Other.

%% "raw data after packets"
is_cut(Observation) ->
    lists:any(
        fun
            ({{_, {setopts, Options}}, _, _}) ->
                lists:member({packet, raw}, Options) orelse lists:member({packet, 0}, Options);
            (_) ->
                false
        end,
        Observation
    ).

has_packets({{Name, Call}, _, _}) ->
    Options =
        case Call of
            {setopts, Given} -> Given;
            _ when Name =:= opening -> Call;
            _ -> []
        end,
    [] =/= [Packet || {packet, Packet} <- Options, Packet =/= raw, Packet =/= 0];
has_packets(_) ->
    false.

%% Whether the peer got the same data, even if it saw a different end; or both are results of a send.
is_same_data([{Data, _} | _], [{Data, _} | _]) when is_binary(Data) -> true;
is_same_data([One | _], [Other | _]) -> is_told(One) andalso is_told(Other);
is_same_data(_, _) -> false.

is_told(Result) ->
    lists:member(Result, [ok, {error, closed}, {error, econnreset}, {error, enotconn}, {error, epipe}]).

is_known_result({ok, One = [Counter | _]}, {ok, Other = [Counter | _]}) when is_tuple(Counter) ->
    is_known_result({ok, tl(One)}, {ok, tl(Other)});
is_known_result({ok, [{Name, _} | _]}, {ok, [{Name, _} | _]}) ->
    lists:member(Name, [recv_cnt, recv_max, recv_avg, recv_dvi]);
is_known_result({ok, One}, {ok, Other}) when not is_tuple(One), not is_tuple(Other) ->
    is_beginning(One, Other) orelse is_beginning(Other, One);
is_known_result({Name, One}, {Name, Other}) -> is_known_result(One, Other);
is_known_result(_, _) -> false.

is_beginning(One, Other) ->
    {Size, Bytes} = {iolist_size(One), iolist_to_binary(Other)},
    Size =< byte_size(Bytes) andalso binary:part(Bytes, 0, Size) =:= iolist_to_binary(One).

whole([{tcp, socket, One}, {tcp, socket, Two} | Messages]) ->
    whole([{tcp, socket, iolist_to_binary([One, Two])} | Messages]);
whole([{tcp, socket, Data} | Messages]) ->
    [{tcp, socket, iolist_to_binary(Data)} | whole(Messages)];
whole([Message | Messages]) ->
    [Message | whole(Messages)];
whole([]) ->
    [].
