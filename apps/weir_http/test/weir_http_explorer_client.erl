%% Clients of the explorer: each connects repeatedly, and requests, pipelines, sends half requests, leaves and resets.
%% What it gets must be complete, its own, and from routes that were set between its request and the response.
-module(weir_http_explorer_client).

-include("weir_http_explorer.hrl").

-export([start/3]).

-import(weir_scenario, [one_of/1]).

-define(LOOPBACK, {127, 0, 0, 1}).

%% A connection: its listener, and the changes of that when it began. `served' once a response has arrived.
-record(connection, {number, socket, known, ends, refusals, served = false}).

start(Number, Seed, Run) ->
    spawn_monitor(fun() ->
        ok = weir_scenario:seed({Seed, Number}),
        visit(Number, Run)
    end).

visit(Number, Run = #run{stop = Stop, listeners = Listeners}) ->
    case counters:get(Stop, 1) of
        0 ->
            {Name, Known} = one_of(Listeners),
            [Ends, Refusals] = [atomics:get(Known, Each) || Each <- [?ENDS, ?REFUSALS]],
            connect(
                weir:get_port(Name), #connection{number = Number, known = Known, ends = Ends, refusals = Refusals}, Run
            ),
            visit(Number, Run);
        _ ->
            ok
    end.

connect(Port, Connection, Run) when is_integer(Port) ->
    case gen_tcp:connect(?LOOPBACK, Port, [binary, {active, false}, {nodelay, true}], weir_test_wait:patience()) of
        {ok, Socket} ->
            _ = put({rest, Socket}, <<>>),
            ok = talk(Connection#connection{socket = Socket}, Run),
            _ = erase({rest, Socket}),
            %% With or without a reset.
            _ = inet:setopts(Socket, [{linger, {one_of([true, false]), 0}}]),
            gen_tcp:close(Socket);
        {error, Reason} ->
            judge(error, {no_response, Reason}, [], Connection, Run)
    end;
connect({error, _} = Error, Connection, Run) ->
    judge(error, {no_response, Error}, [], Connection, Run),
    timer:sleep(1).

talk(Connection, Run) ->
    try
        turns(rand:uniform(6), Connection, Run)
    catch
        throw:{cut, Reason, Stack, Last} -> judge(error, Reason, Stack, Last, Run);
        Class:Reason:Stack -> judge(Class, Reason, Stack, Connection, Run)
    end.

%% A connection may end early only if its listener changed, and be refused only if that does not listen. Anything else
%% is a fault.
judge(error, {Gone, Reason}, Stack, Connection, Run) when Gone =:= no_response; Gone =:= nothing ->
    case Reason =/= timeout andalso may_end(Connection) of
        true -> ok;
        false -> fault({cut_off, Reason, Stack, Connection}, Run)
    end;
judge(Class, Reason, Stack, Connection, Run) ->
    fault({Class, Reason, Stack, Connection}, Run).

fault(Fault, #run{seen = Seen}) ->
    ets:insert(Seen, {{fault, Fault}}),
    ok.

may_end(#connection{known = Known, ends = Ends, refusals = Refusals, served = Served}) ->
    has_changed(Known, ?ENDS, Ends) orelse (not Served andalso has_changed(Known, ?REFUSALS, Refusals)).

has_changed(Known, Which, Before) -> Before rem 2 =:= 1 orelse atomics:get(Known, Which) =/= Before.

turns(0, _Connection, _Run) ->
    ok;
turns(Left, Connection, Run) ->
    case turn(rand:uniform(20), Connection, Run) of
        keep -> turns(Left - 1, Connection#connection{served = true}, Run);
        leave -> ok
    end.

turn(N, Connection, Run) when N =< 8 -> ask_all([question(Connection)], Connection, Run);
turn(N, Connection, Run) when N =< 12 ->
    ask_all([question(Connection) || _ <- lists:seq(1, 1 + rand:uniform(5))], Connection, Run);
turn(13, Connection, Run) ->
    ask_in_parts(question(Connection), Connection, Run);
turn(14, Connection, _Run) ->
    ask_half(question(Connection), Connection);
turn(15, Connection, _Run) ->
    ask_and_leave(question(Connection), Connection);
turn(16, Connection, Run) ->
    die(Connection, Run);
turn(N, Connection, Run) when N =< 18 -> listen(Connection, Run);
turn(_, Connection, Run) ->
    converse(Connection, Run).

%% Requests -------------------------------------------------------------------------

%% {Id, the oldest version that may answer, the kind of request, its bytes}.
question(Connection = #connection{known = Known}) ->
    Id = id(Connection),
    Given = atomics:get(Known, ?GIVEN),
    {Kind, Bytes} = question(rand:uniform(8), Id, Given),
    {Id, Given, Kind, Bytes}.

question(N, Id, _) when N =< 2 -> {plain, get("/direct/", Id)};
question(3, Id, Given) ->
    Version = Given + rand:uniform(3) - 2,
    {{only, Version}, get(["/only", integer_to_list(Version), "/"], Id)};
question(N, Id, _) when N =< 5 -> {plain, get("/process/", Id)};
question(6, Id, _) ->
    {held, get("/held/", Id)};
question(7, Id, _) ->
    Chunks = rand:uniform(9) - 1,
    {{chunks, Chunks}, get("/stream/", [Id, "?chunks=", integer_to_list(Chunks)])};
question(8, Id, _) ->
    Body = binary:copy(<<"x">>, one_of([0, 1, 1000, 100_000])),
    {{body, Body}, [
        "POST /body/",
        Id,
        " HTTP/1.1\r\nHost: localhost\r\nContent-Length: ",
        integer_to_list(byte_size(Body)),
        "\r\n\r\n",
        Body
    ]}.

get(Path, Rest) -> weir_http_client:get([Path, Rest]).

id(#connection{number = Number}) -> io_lib:format("~b-~b", [Number, erlang:unique_integer([positive])]).

ask_all(Questions, Connection, Run) ->
    ok = send([Bytes || {_, _, _, Bytes} <- Questions], Connection),
    answers(Questions, Connection, Run).

answers([], _Connection, _Run) ->
    keep;
answers([Question | Questions], Connection, Run) ->
    case answer(Question, Connection, Run) of
        keep -> answers(Questions, Connection#connection{served = true}, Run);
        leave -> leave
    end.

%% The last part completes the head.
ask_in_parts({Id, _, Kind, Bytes}, Connection = #connection{known = Known}, Run) ->
    Whole = iolist_to_binary(Bytes),
    %% The first part ends within the head.
    {Size, _} = binary:match(Whole, <<"\r\n\r\n">>),
    {First, Second} = split_binary(Whole, rand:uniform(Size)),
    ok = send(First, Connection),
    timer:sleep(rand:uniform(5) - 1),
    Given = atomics:get(Known, ?GIVEN),
    ok = send(Second, Connection),
    answer({Id, Given, Kind, Bytes}, Connection, Run).

ask_half({_, _, _, Bytes}, Connection) ->
    Whole = iolist_to_binary(Bytes),
    ok = send(binary:part(Whole, 0, rand:uniform(byte_size(Whole)) - 1), Connection),
    timer:sleep(rand:uniform(3) - 1),
    leave.

ask_and_leave({_, _, _, Bytes}, Connection) ->
    ok = send(Bytes, Connection),
    leave.

%% The process is killed: a 500, or an incomplete response.
die(Connection = #connection{socket = Socket}, Run) ->
    ok = send(get("/dies/", id(Connection)), Connection),
    case weir_http_client:head(Socket) of
        {500, _} -> leave;
        {200, #{<<"transfer-encoding">> := <<"chunked">>}} ->
            try weir_http_client:chunk(Socket) of
                Chunk -> fault({a_dead_process_has_said, Chunk}, Run), leave
            catch
                error:{no_response, Reason} when Reason =/= timeout -> leave
            end
    end.

%% Responses ------------------------------------------------------------------------

answer({Id, Given, Kind, _}, Connection = #connection{socket = Socket, known = Known}, Run) ->
    {Status, Fields, Body} = whole(Socket, Kind),
    Begun = atomics:get(Known, ?BEGUN),
    case {Kind, Status} of
        {{only, Version}, 404} ->
            Given =:= Version andalso Begun =:= Version andalso fault({not_there, Version, Connection}, Run);
        %% Ended by a drain.
        {held, 204} ->
            may_end(Connection) orelse fault({ended_for_nothing, Id, Connection}, Run);
        {_, 200} ->
            is_right(Kind, Body, iolist_to_binary(Id), {Given, Begun}, Run) orelse
                fault({wrong_answer, {Kind, Id, {versions, Given, Begun}}, {Status, Fields, Body}, Connection}, Run);
        _ ->
            fault({wrong_status, {Kind, Id}, {Status, Fields, Body}, Connection}, Run)
    end,
    after_it(Fields).

after_it(#{<<"connection">> := <<"close">>}) -> leave;
after_it(#{}) -> keep.

whole(Socket, {chunks, _}) ->
    case weir_http_client:head(Socket) of
        {200, Fields} -> {200, Fields, chunks(Socket)};
        {Status, Fields} -> {Status, Fields, none}
    end;
whole(Socket, _Kind) ->
    weir_http_client:response(Socket).

%% Several chunks may have been sent together.
chunks(Socket) ->
    case weir_http_client:chunk(Socket) of
        done -> [];
        Chunk -> [Chunk | chunks(Socket)]
    end.

is_right(Kind, Body, Id, Versions, Run) ->
    Text = iolist_to_binary(Body),
    [Version, IsLogged | _] = binary:split(Text, <<" ">>, [global]),
    Number = binary_to_integer(Version),
    ok = answered(Id, IsLogged, Run),
    Text =:= iolist_to_binary([Version, " ", IsLogged, " ", Id, behind(Kind)]) andalso
        in_force(Number, Versions) andalso
        is_only(Kind, Number).

behind({chunks, Chunks}) -> [integer_to_binary(N) || N <- lists:seq(1, Chunks)];
behind({body, Body}) -> [" ", Body];
behind(_) -> [].

in_force(Version, {Given, Begun}) -> Version >= Given andalso Version =< Begun.

is_only({only, Only}, Version) -> Only =:= Version;
is_only(_, _Version) -> true.

answered(Id, IsLogged, #run{seen = Seen, numbers = Numbers}) ->
    ok = counters:add(Numbers, ?ANSWERED, 1),
    _ = IsLogged =:= <<"true">> andalso ets:insert(Seen, {{answered, Id}}),
    ok.

%% Streams and WebSockets -----------------------------------------------------------

%% An event stream that opens, and receives some broadcasts without a gap.
listen(Connection = #connection{socket = Socket, known = Known}, Run) ->
    {Id, Given} = {iolist_to_binary(id(Connection)), atomics:get(Known, ?GIVEN)},
    ok = send(get("/events/", Id), Connection),
    {200, _} = weir_http_client:head(Socket),
    <<"data: ", Said/binary>> = event(Socket),
    Begun = atomics:get(Known, ?BEGUN),
    is_right(plain, Said, Id, {Given, Begun}, Run) orelse fault({wrong_event, Said, Id, {Given, Begun}}, Run),
    Numbers = try
        [number(event(Socket)) || _ <- lists:seq(1, rand:uniform(4) - 1)]
    catch
        %% From now on its end is judged like that of a connection that was served.
        error:Reason:Stack -> throw({cut, Reason, Stack, Connection#connection{served = true}})
    end,
    is_without_gap(Numbers) orelse fault({gap, Numbers}, Run),
    leave.

number(<<"data: ", Number/binary>>) -> binary_to_integer(Number).

is_without_gap([]) -> true;
is_without_gap(Numbers = [First | _]) -> Numbers =:= lists:seq(First, First + length(Numbers) - 1).

event(Socket) ->
    case weir_http_client:chunk(Socket) of
        done -> error({no_response, closed});
        <<"data: ", _/binary>> = Event -> binary:part(Event, 0, byte_size(Event) - 2);
        %% A drain sends retry.
        <<"retry: ", _/binary>> -> event(Socket);
        <<":", _/binary>> -> event(Socket)
    end.

converse(Connection = #connection{socket = Socket, known = Known}, Run) ->
    {Id, Given} = {iolist_to_binary(id(Connection)), atomics:get(Known, ?GIVEN)},
    ok = send(handshake(Id), Connection),
    case weir_http_websocket_client:upgraded(Socket) of
        {101, _} -> converse(Id, {Given, atomics:get(Known, ?BEGUN)}, Connection, Run);
        %% Refused because of a drain.
        {503, _} -> may_end(Connection) orelse fault({refused_for_nothing, Id, Connection}, Run)
    end,
    leave.

converse(Id, Versions, Connection = #connection{socket = Socket}, Run) ->
    try
        _ = [said(Connection, Id, Versions, Run) || _ <- lists:seq(1, rand:uniform(4))],
        case rand:uniform(2) of
            1 -> ok;
            2 ->
                ok = send(weir_http_websocket_client:frame(16#88, <<1000:16>>), Connection),
                {close, _, _} = weir_http_websocket_client:recv(Socket)
        end
    catch
        throw:drained -> ok;
        error:Reason:Stack -> throw({cut, Reason, Stack, Connection#connection{served = true}})
    end.

said(Connection = #connection{socket = Socket}, Id, Versions, Run) ->
    Word = integer_to_binary(rand:uniform(1 bsl 40)),
    ok = send(weir_http_websocket_client:text(Word), Connection),
    case weir_http_websocket_client:recv(Socket) of
        {text, Text} ->
            [Version, IsLogged, Own, Echo] = binary:split(Text, <<" ">>, [global]),
            ok = answered(Id, IsLogged, Run),
            ({Own, Echo} =:= {Id, Word} andalso in_force(binary_to_integer(Version), Versions)) orelse
                fault({wrong_message, Text, {Id, Word, Versions}}, Run);
        {close, _, _} ->
            may_end(Connection) orelse fault({closed_for_nothing, Connection}, Run),
            throw(drained)
    end.

handshake(Id) ->
    [
        "GET /socket/",
        Id,
        lists:nthtail(length("GET /websocket"), lists:flatten(weir_http_websocket_client:handshake("")))
    ].

send(Bytes, #connection{socket = Socket}) ->
    case gen_tcp:send(Socket, Bytes) of
        ok -> ok;
        {error, Reason} -> error({no_response, Reason})
    end.
