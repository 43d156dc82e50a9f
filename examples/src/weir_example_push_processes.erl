%% @doc A chat server with long polls, as a first version on gen_tcp would be: a process for each client, one for each
%% room, and a loop that sends.
%%
%% `GET /sub/ROOM' waits for the next message of a room after the one that `If-None-Match' names, and `POST /pub/ROOM'
%% publishes one. The room sends a message to the process of each waiting client, one after the other. All of them
%% become runnable at once, and the room and all other processes wait until they have run. A client that has left is
%% noticed only when data is sent to it.
-module(weir_example_push_processes).

-export([start/1]).

%% Messages that a room keeps for clients between two polls, and the maximum bytes of a head and of a message.
-define(KEPT, 1000).
-define(LONGEST_HEAD, 8192).
-define(LONGEST_MESSAGE, 100000).

%% @doc Starts the server. Options: see {@link weir_example_acceptors:start/2}.
-spec start(#{port => inet:port_number(), listen => [gen_tcp:listen_option()], _ => _}) ->
    {ok, weir_example_acceptors:server()} | {error, term()}.
start(Options) ->
    Rooms = spawn_link(fun() -> rooms(#{}) end),
    case weir_example_acceptors:start(Options, fun(Socket) -> serve(Socket, Rooms, #{}, <<>>) end) of
        {ok, #{stop := Stop} = Server} ->
            {ok, Server#{stop := fun() -> Rooms ! stop, Stop() end}};
        {error, _} = Error ->
            Rooms ! stop,
            Error
    end.

%% Maps names of rooms to processes.
rooms(Known) ->
    receive
        {room, Name, From} ->
            Room = case Known of #{Name := Pid} -> Pid; #{} -> spawn_link(fun() -> room(0, [], []) end) end,
            From ! {room, Name, Room},
            rooms(Known#{Name => Room});
        stop ->
            lists:foreach(fun(Room) -> unlink(Room), exit(Room, shutdown) end, maps:values(Known))
    end.

%% The number of the last message, the messages (newest first), and the waiting processes.
room(Last, Messages, Waiting) ->
    receive
        {say, Text, From} ->
            Number = Last + 1,
            lists:foreach(fun(Pid) -> Pid ! {message, Number, Text} end, Waiting),
            From ! {said, length(Waiting)},
            room(Number, lists:sublist([{Number, Text} | Messages], ?KEPT), []);
        {next, After, From} ->
            case lists:takewhile(fun({Number, _}) -> Number > After end, Messages) of
                [] ->
                    room(Last, Messages, [From | Waiting]);
                Missed ->
                    {Number, Text} = lists:last(Missed),
                    From ! {message, Number, Text},
                    room(Last, Messages, Waiting)
            end
    end.

%% A connection --------------------------------------------------------------------------

%% `Known' caches the processes of rooms.
serve(Socket, Rooms, Known, Buffer) ->
    case head(Socket, Buffer) of
        {ok, Request, Rest} -> answer(Request, Socket, Rooms, Known, Rest);
        closed -> gen_tcp:close(Socket)
    end.

answer({<<"GET">>, <<"/sub/", Name/binary>>, Fields}, Socket, Rooms, Known, Rest) ->
    {Room, More} = room_of(Name, Rooms, Known),
    Room ! {next, number(<<"If-None-Match">>, Fields), self()},
    receive
        {message, Number, Text} ->
            Head = [
                "HTTP/1.1 200 OK\r\nLast-Modified: Thu, 01 Jan 1970 00:00:00 GMT\r\nEtag: ",
                integer_to_binary(Number),
                "\r\n"
            ],
            reply(Socket, Head, Text, Rooms, More, Rest)
    end;
answer({<<"POST">>, <<"/pub/", Name/binary>>, Fields}, Socket, Rooms, Known, Rest) ->
    case body(Socket, number(<<"Content-Length">>, Fields), Rest) of
        {ok, Text, After} ->
            {Room, More} = room_of(Name, Rooms, Known),
            Room ! {say, Text, self()},
            receive
                {said, 0} -> reply(Socket, "HTTP/1.1 202 Accepted\r\n", <<>>, Rooms, More, After);
                {said, _} -> reply(Socket, "HTTP/1.1 201 Created\r\n", <<>>, Rooms, More, After)
            end;
        closed ->
            gen_tcp:close(Socket)
    end;
answer(_Other, Socket, Rooms, Known, Rest) ->
    reply(Socket, "HTTP/1.1 404 Not Found\r\n", <<>>, Rooms, Known, Rest).

reply(Socket, Head, Body, Rooms, Known, Rest) ->
    case gen_tcp:send(Socket, [Head, "Content-Length: ", integer_to_binary(byte_size(Body)), "\r\n\r\n", Body]) of
        ok -> serve(Socket, Rooms, Known, Rest);
        {error, _} -> gen_tcp:close(Socket)
    end.

room_of(Name, _Rooms, Known) when is_map_key(Name, Known) ->
    {map_get(Name, Known), Known};
room_of(Name, Rooms, Known) ->
    Own = binary:copy(Name),
    Rooms ! {room, Own, self()},
    receive
        {room, Own, Room} -> {Room, Known#{Own => Room}}
    end.

head(Socket, Buffer) ->
    case binary:split(Buffer, <<"\r\n\r\n">>) of
        [Head, Rest] -> request(binary:split(Head, <<"\r\n">>, [global]), Rest);
        [_] when byte_size(Buffer) > ?LONGEST_HEAD -> closed;
        [_] -> more(Socket, Buffer, fun head/2)
    end.

request([Line | Fields], Rest) ->
    case binary:split(Line, <<" ">>, [global]) of
        [Method, Path, _Version] ->
            Split = [binary:split(Field, <<": ">>) || Field <- Fields],
            {ok, {Method, Path, maps:from_list([{Name, Value} || [Name, Value] <- Split])}, Rest};
        _ ->
            closed
    end.

body(_Socket, Length, _Buffer) when Length > ?LONGEST_MESSAGE ->
    closed;
body(Socket, Length, Buffer) ->
    case Buffer of
        <<Text:Length/binary, Rest/binary>> -> {ok, Text, Rest};
        _ -> more(Socket, Buffer, fun(_, Longer) -> body(Socket, Length, Longer) end)
    end.

more(Socket, Buffer, Continue) ->
    case gen_tcp:recv(Socket, 0) of
        {ok, Data} -> Continue(Socket, <<Buffer/binary, Data/binary>>);
        {error, _} -> closed
    end.

number(Name, Fields) ->
    try binary_to_integer(maps:get(Name, Fields, <<"0">>))
    catch error:badarg -> 0
    end.
