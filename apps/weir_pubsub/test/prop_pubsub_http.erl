%% Over HTTP, by each transport that has ids, in one channel or in several: a client sees the messages of each channel
%% in order and without repetition, and every gap is announced; its id says what it has seen of each channel; at the
%% end it has all messages. Clients drop their connections, come back with any id, and stop reading for a while;
%% channels are deleted.
-module(prop_pubsub_http).

-include_lib("proper/include/proper.hrl").
-include_lib("stdlib/include/assert.hrl").

-export([prop_sequences/0]).
-export([run/1]).

-define(LISTENER, ?MODULE).
-define(CHANNELS, [<<"one">>, <<"two">>, <<"three">>]).
-record(client, {
    transport = none :: none | stream | multipart | websocket | poll | polls,
    channels = [] :: [binary()],
    socket = none,
    is_read = true :: boolean(),
    %% The bytes of this connection, and how many of its events were checked.
    bytes = <<>> :: binary(),
    looked_at = 0 :: non_neg_integer(),
    positions = #{} :: #{binary() => {pos_integer(), non_neg_integer()}},
    %% The last id for each list of channels: what a client comes back with.
    ids = #{} :: #{[binary()] => binary()},
    log = [] :: [{binary(), {pos_integer(), non_neg_integer()}, binary()}]
}).

prop_sequences() ->
    ?FORALL({Policy, Programs}, {policy(), vector(3, list(step()))}, begin
        ok = weir_pubsub:configure(#{channels => [{<<"*">>, Policy}]}),
        Actors = [spawn_monitor(fun() -> exit({shutdown, run(Program)}) end) || Program <- Programs],
        Logs = [
            receive
                {'DOWN', Monitor, process, Pid, Reason} -> Reason
            after 4 * weir_test_wait:patience() -> timeout
            end
         || {Pid, Monitor} <- Actors
        ],
        _ = [weir_pubsub:delete(Channel) || Channel <- ?CHANNELS],
        Verdict = verdict(Logs),
        ?WHENFAIL(io:format("~p~n", [Verdict]), Verdict =:= ok)
    end).

policy() ->
    ?LET(
        {Messages, Slow, Queue},
        {oneof([1, 3, 1000]), oneof([drop_oldest, disconnect]), oneof([1, 4, 64])},
        #{max_messages => Messages, max_bytes => 100000000, slow => Slow, max_queue => Queue, idle_timeout => 0}
    ).

channels() -> ?LET(Some, non_empty(list(oneof(?CHANNELS))), lists:usort(Some)).

step() ->
    frequency([
        {10, {publish, channels(), oneof([10, 1000, 50000])}},
        {5,
            {subscribe, channels(), oneof([stream, multipart, websocket, poll, polls]),
                oneof([oldest, back, nonsense])}},
        {2, drop},
        {2, {read, boolean()}},
        {1, {delete, oneof(?CHANNELS)}}
    ]).

%% A program -----------------------------------------------------------------------

run(Program) ->
    try
        Last = finish(lists:foldl(fun(Step, Client) -> do(Step, listen(Client)) end, #client{}, Program)),
        {done, Last#client.log}
    catch
        Class:Reason:Stack -> {failed, Class, Reason, Stack}
    end.

do({publish, Channels, Size}, Client) ->
    Data = [hex(term_to_binary(make_ref())), lists:duplicate(Size, $x)],
    {Status, _, _} = request(
        <<"POST">>, ["/pub/", lists:join($,, Channels)], [{"Content-Type", "text/plain"}], iolist_to_binary(Data)
    ),
    true = lists:member(Status, [201, 202]),
    Client;
do({try_publish, Channels, Size}, Client) ->
    Data = [hex(term_to_binary(make_ref())), lists:duplicate(Size, $x)],
    {Status, _, _} = request(
        <<"POST">>, ["/pub/", lists:join($,, Channels)], [{"Content-Type", "text/plain"}], iolist_to_binary(Data)
    ),
    %% A limit, or a shard that was killed.
    true = lists:member(Status, [201, 202, 403, 503, 507]),
    Client;
do({delete, Channel}, Client) ->
    {Status, _, _} = request(<<"DELETE">>, ["/pub/", Channel], [], <<>>),
    true = lists:member(Status, [200, 404, 503]),
    Client;
do(drop, Client) ->
    drop(Client);
do({read, IsRead}, #client{socket = Socket} = Client) ->
    _ = Socket =:= none orelse inet:setopts(Socket, [{active, IsRead}]),
    Client#client{is_read = IsRead};
do({subscribe, Channels, Transport, From}, Client) ->
    Dropped = #client{ids = Ids} = drop(Client),
    Id =
        case From of
            oldest -> none;
            back -> maps:get(Channels, Ids, none);
            nonsense -> weir_pubsub_id:to_text(nonsense(Channels))
        end,
    connect(Id, Dropped#client{transport = Transport, channels = Channels, is_read = true}).

nonsense([_]) -> {rand:uniform(1 bsl 30), rand:uniform(10)};
nonsense(Channels) -> {several, 1, [{rand:uniform(1 bsl 30), rand:uniform(10)} || _ <- Channels]}.

hex(Bytes) -> binary:encode_hex(Bytes).

request(Method, Path, Fields, Body) -> weir_pubsub_nchan:request(weir:get_port(?LISTENER), Method, Path, Fields, Body).

drop(#client{socket = none} = Client) -> Client#client{transport = none};
drop(#client{socket = Socket} = Client) ->
    ok = gen_tcp:close(Socket),
    forget(Socket),
    Client#client{socket = none, transport = none, bytes = <<>>, looked_at = 0}.

forget(Socket) ->
    receive
        {tcp, Socket, _} -> forget(Socket);
        {tcp_closed, Socket} -> forget(Socket);
        {tcp_error, Socket, _} -> forget(Socket)
    after 0 -> ok
    end.

connect(Id, #client{transport = Transport, channels = Channels} = Client) ->
    Port = weir:get_port(?LISTENER),
    Path = ["/sub/", lists:join($,, Channels)],
    Fields =
        case Id of
            none -> [];
            _ -> [{"Last-Event-ID", Id}]
        end,
    Socket =
        case Transport of
            stream ->
                weir_pubsub_nchan:begin_request(Port, <<"GET">>, Path, [{"Accept", "text/event-stream"} | Fields]);
            multipart ->
                weir_pubsub_nchan:begin_request(Port, <<"GET">>, Path, [{"Accept", "multipart/mixed"} | Fields]);
            poll ->
                weir_pubsub_nchan:begin_request(Port, <<"GET">>, Path, Fields);
            polls ->
                weir_pubsub_nchan:begin_request(Port, <<"GET">>, [Path, "?poll_answer=multipart"], Fields);
            websocket ->
                element(2, weir_pubsub_nchan:handshake(Port, Path, "ws+meta.nchan", none, Fields))
        end,
    ok = inet:setopts(Socket, [{active, Client#client.is_read}, {buffer, 16#10000}]),
    Positions =
        case Id of
            none -> #{};
            _ -> positions(Id, Channels)
        end,
    Client#client{socket = Socket, bytes = <<>>, looked_at = 0, positions = Positions}.

positions(Id, Channels) ->
    maps:from_list([{Channel, Place} || {Channel, Place} <- lists:zip(Channels, places(Id, Channels)), Place =/= none]).

places(Id, [_]) -> {ok, Place} = weir_pubsub_id:from_text(Id), [Place];
places(Id, Channels) -> {ok, Places} = weir_pubsub_id:several_from_text(Id, length(Channels)), Places.

listen(#client{bytes = Before} = Client) ->
    case come(Client) of
        #client{bytes = Bytes} = More when byte_size(Bytes) > byte_size(Before) -> closed(look(More));
        Same -> Same
    end.

%% A server that closes a WebSocket waits for the client to do the same.
closed(#client{transport = websocket, socket = Socket, bytes = Bytes} = Client) when Socket =/= none ->
    case after_texts(Bytes) of
        <<16#88, _/binary>> -> drop(Client);
        _ -> Client
    end;
closed(Client) ->
    Client.

%% What has come by now. A poll is answered when its connection ends.
come(#client{socket = Socket, transport = Transport, bytes = Bytes} = Client) ->
    receive
        {tcp, Socket, More} -> come(Client#client{bytes = <<Bytes/binary, More/binary>>});
        {tcp_closed, Socket} when Transport =:= poll; Transport =:= polls -> come(answered(Client));
        {tcp_closed, Socket} -> ended(look(Client));
        {tcp_error, Socket, _} -> ended(look(Client))
    after 0 -> Client
    end.

ended(#client{socket = Socket} = Client) ->
    forget(Socket),
    Client#client{socket = none, transport = none, bytes = <<>>, looked_at = 0}.

%% What has come is looked at when it is whole.
look(#client{transport = Transport} = Client) when Transport =:= poll; Transport =:= polls ->
    Client;
look(#client{transport = Transport, bytes = Bytes, looked_at = Count} = Client) ->
    Events = events(Transport, Bytes),
    lists:foldl(fun seen/2, Client#client{looked_at = length(Events)}, lists:nthtail(Count, Events)).

events(websocket, Bytes) -> [event(Text) || Text <- texts(Bytes)];
events(Transport, Bytes) ->
    case binary:match(Bytes, <<"\r\n\r\n">>) of
        nomatch -> [];
        _ ->
            case weir_pubsub_nchan:parsed(Bytes) of
                {200, Fields, Body} -> events(Transport, Fields, Body);
                %% A channel was deleted before the stream had begun, its shard was killed, or a limit is reached.
                {Status, _, _} when Status =:= 410; Status =:= 503; Status =:= 403 -> []
            end
    end.

events(stream, _Fields, Body) ->
    [
        said(Lines)
     || Event <- lists:droplast(binary:split(Body, <<"\n\n">>, [global])),
        Lines <- [fields(Event, <<"\n">>)],
        is_map_key(<<"id">>, Lines)
    ];
events(multipart, Fields, Body) ->
    {_, <<"multipart/mixed; boundary=", Boundary/binary>>} = lists:keyfind(<<"content-type">>, 1, Fields),
    [
        part(binary:split(Part, <<"\r\n\r\n">>))
     || Part <- lists:droplast(binary:split(Body, <<"--", Boundary/binary>>, [global])), Part =/= <<>>
    ].

said(#{<<"event">> := <<"gap">>, <<"id">> := Id, <<"data">> := Missed}) -> {gap, Id, missed(Missed)};
said(#{<<"id">> := Id, <<"data">> := Data}) -> {message, Id, Data}.

%% The date is that of the epoch.
part([Head, Content]) ->
    #{<<"last-modified">> := Date, <<"etag">> := Tag} = Fields = fields(Head, <<"\r\n">>),
    Id = <<(integer_to_binary(weir_http_nif:parse_date(Date)))/binary, $:, Tag/binary>>,
    Data = binary:part(Content, 0, byte_size(Content) - 2),
    case Fields of #{<<"content-type">> := <<"weir/gap">>} -> {gap, Id, missed(Data)}; #{} -> {message, Id, Data} end.

event(Text) ->
    [Head, Data] = binary:split(Text, <<"\n\n">>),
    case fields(Head, <<"\n">>) of
        #{<<"id">> := Id, <<"content-type">> := <<"weir/gap">>} -> {gap, Id, missed(Data)};
        #{<<"id">> := Id} -> {message, Id, Data}
    end.

missed(<<"unknown">>) -> unknown;
missed(Count) -> binary_to_integer(Count).

fields(Text, End) ->
    maps:from_list([
        {string:lowercase(Name), string:trim(Value)}
     || Line <- binary:split(Text, End, [global]), [Name, Value] <- [binary:split(Line, <<":">>)], Name =/= <<>>
    ]).

texts(Bytes) -> case text(Bytes) of {Text, Rest} -> [Text | texts(Rest)]; none -> [] end.

after_texts(Bytes) -> case text(Bytes) of {_, Rest} -> after_texts(Rest); none -> Bytes end.

text(<<16#81, 127, Length:64, Text:Length/binary, Rest/binary>>) -> {Text, Rest};
text(<<16#81, 126, Length:16, Text:Length/binary, Rest/binary>>) -> {Text, Rest};
text(<<16#81, Length, Text:Length/binary, Rest/binary>>) when Length < 126 -> {Text, Rest};
text(_Incomplete) -> none.

%% A poll is over: the next one begins with its id.
answered(#client{bytes = Bytes, socket = Socket} = Client) ->
    forget(Socket),
    case weir_pubsub_nchan:parsed(Bytes) of
        {200, Fields, Data} ->
            {_, Date} = lists:keyfind(<<"last-modified">>, 1, Fields),
            {_, Tag} = lists:keyfind(<<"etag">>, 1, Fields),
            Id = <<(integer_to_binary(weir_http_nif:parse_date(Date)))/binary, $:, Tag/binary>>,
            Missed = case lists:keyfind(<<"weir-missed">>, 1, Fields) of {_, Text} -> missed(Text); false -> none end,
            connect(Id, taken(Id, Missed, contents(Fields, Data), Client));
        {Status, _, _} when Status =:= 403; Status =:= 408; Status =:= 410; Status =:= 503 ->
            Client#client{socket = none, transport = none}
    end.

contents(Fields, Body) ->
    case lists:keyfind(<<"content-type">>, 1, Fields) of
        {_, <<"multipart/mixed; boundary=", Boundary/binary>>} ->
            [<<>> | Parts] = binary:split(<<"\r\n", Body/binary>>, <<"\r\n--", Boundary/binary>>, [global]),
            [lists:last(binary:split(Part, <<"\r\n\r\n">>)) || Part <- lists:droplast(Parts)];
        _ ->
            [Body]
    end.

%% Several messages of one channel are consecutive. With several channels the response does not say which channel each
%% is of: they are only counted.
taken(Id, Missed, [Data], Client) ->
    seen({message, Id, Data}, told(Missed, Id, Client));
taken(Id, Missed, Several, #client{channels = [_]} = Client) ->
    {ok, {Epoch, Last}} = weir_pubsub_id:from_text(Id),
    [First | _] =
        Ids = [weir_pubsub_id:to_text({Epoch, Number}) || Number <- lists:seq(Last - length(Several) + 1, Last)],
    lists:foldl(
        fun({Of, Data}, Now) -> seen({message, Of, Data}, Now) end, told(Missed, First, Client), lists:zip(Ids, Several)
    );
taken(Id, Missed, Several, #client{channels = Channels, positions = Before, ids = Ids} = Client) ->
    Now = positions(Id, Channels),
    Taken = [
        case Before of
            #{Channel := {Epoch, From}} -> Number - From;
            #{} -> unknown
        end
     || {Channel, {Epoch, Number}} <- maps:to_list(Now)
    ],
    case lists:member(unknown, [Missed | Taken]) of
        true ->
            ok;
        false ->
            ?assertEqual(
                length(Several) +
                    case Missed of
                        none -> 0;
                        _ -> Missed
                    end,
                lists:sum(Taken)
            )
    end,
    Client#client{positions = maps:merge(Before, Now), ids = Ids#{Channels => Id}}.

%% A long poll does not say which of the channels has the gap. It reports at least as much as is missing there.
told(none, _Id, Client) ->
    Client;
told(unknown, _Id, Client) ->
    Client#client{positions = #{}};
told(Missed, Id, #client{channels = Channels, positions = Positions} = Client) ->
    Holes = [
        Number - Before - 1
     || {Channel, {Epoch, Number}} <- maps:to_list(positions(Id, Channels)),
        {E, Before} <- [maps:get(Channel, Positions, none)], E =:= Epoch, Number > Before + 1
    ],
    true = lists:sum(Holes) =< Missed,
    Client#client{positions = #{}}.

%% The law ---------------------------------------------------------------------------

seen({gap, Id, Missed}, #client{channels = Channels, positions = Before} = Client) ->
    {Channel, {Epoch, Number}} = latest(Id, Channels),
    case Before of
        #{Channel := {Epoch, Last}} when Missed =:= Number - Last; Missed =:= unknown -> ok;
        #{Channel := {Other, _}} when Other =/= Epoch, Missed =:= unknown -> ok;
        #{Channel := Position} -> error({wrong_gap, Id, Missed, Position});
        #{} -> ok
    end,
    moved(Id, Channel, Client);
seen({message, Id, Data}, #client{channels = Channels, positions = Before, log = Log} = Client) ->
    {Channel, {Epoch, Number} = Place} = latest(Id, Channels),
    case Before of
        #{Channel := {Epoch, Last}} when Number =:= Last + 1 -> ok;
        #{Channel := Position} -> error({hole, Channel, Id, Position});
        #{} -> ok
    end,
    moved(Id, Channel, Client#client{log = [{Channel, Place, Data} | Log]}).

%% Nothing has happened in the other channels.
moved(Id, Channel, #client{channels = Channels, positions = Before, ids = Ids} = Client) ->
    Now = positions(Id, Channels),
    Others = maps:remove(Channel, Before),
    ?assertEqual(Others, maps:with(maps:keys(Others), Now)),
    Client#client{positions = maps:merge(Before, Now), ids = Ids#{Channels => Id}}.

latest(Id, [Channel]) ->
    [Place] = places(Id, [Channel]),
    {Channel, Place};
latest(Id, Channels) ->
    [Front, _] = binary:split(Id, <<"[">>),
    Which = length(binary:matches(Front, <<",">>)) + 1,
    {lists:nth(Which, Channels), lists:nth(Which, places(Id, Channels))}.

%% Reads until it is at the end of all its channels, or is told that they have ended.
finish(Client) -> finish(do({read, true}, Client), erlang:monotonic_time(millisecond) + weir_test_wait:patience()).

finish(#client{socket = none} = Client, _Until) ->
    Client;
finish(Client, Until) ->
    #client{transport = Transport, channels = Channels, positions = Positions} = Now = listen(Client),
    Late = [
        {Channel, Position, Last}
     || Channel <- Channels, {ok, #{last_id := {_, Number} = Last}} <- [weir_pubsub:info(Channel)], Number > 0,
        Position <- [maps:get(Channel, Positions, none)], Position =/= Last, has_more(Transport, Channel, Position)
    ],
    case {Late, erlang:monotonic_time(millisecond) > Until} of
        {[], _} -> drop(Now);
        _ when Now#client.socket =:= none -> Now;
        {_, true} -> error({behind, Late, Now#client.transport, shown(Now#client.bytes)});
        _ -> timer:sleep(5), finish(Now, Until)
    end.

%% A long poll whose missed messages are gone waits for the next message, and reports the gap with that. A client that
%% began with the oldest message has not missed those that are gone.
has_more(Transport, Channel, Position) when Transport =:= poll; Transport =:= polls; Position =:= none ->
    case weir_pubsub:history(Channel, #{from => case Position of none -> oldest; _ -> Position end}) of
        {ok, #{messages := Messages}} -> Messages =/= [];
        {error, no_channel} -> false
    end;
has_more(_Transport, _Channel, _Position) ->
    true.

%% The begin and the end.
shown(Bytes) when byte_size(Bytes) > 1000 -> {binary:part(Bytes, 0, 500), binary:part(Bytes, byte_size(Bytes), -500)};
shown(Bytes) -> Bytes.

%% All of them -----------------------------------------------------------------------

%% An id of a channel means one message, for all clients.
verdict(Logs) ->
    case [Log || Log <- Logs, not is_done(Log)] of
        [] -> agree(lists:append([Log || {shutdown, {done, Log}} <- Logs]), #{});
        Failed -> {failed, Failed}
    end.

is_done({shutdown, {done, _}}) -> true;
is_done(_) -> false.

agree([{Channel, Id, Data} | Others], Known) ->
    case Known of
        #{{Channel, Id} := Data} -> agree(Others, Known);
        #{{Channel, Id} := _} -> {two_messages, Channel, Id};
        #{} -> agree(Others, Known#{{Channel, Id} => Data})
    end;
agree([], _Known) ->
    ok.
