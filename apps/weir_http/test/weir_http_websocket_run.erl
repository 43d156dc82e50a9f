%% Runs a case of `weir_http_websocket_cases' against an echo server, and returns its verdict.
-module(weir_http_websocket_run).

-export([outcome/2, verdict/2, run/2]).

-import(weir_http_websocket_client, [recv/1, frame/2]).

%% Milliseconds in which a server must stay silent.
-define(SILENCE, 20).

run(Case, Port) -> verdict(Case, outcome(Case, Port)).

%% Returns the items received, and how the connection ended.
outcome(Case, Port) ->
    Socket = weir_http_client:connect(Port),
    try
        told(Case, Socket)
    catch
        error:{nothing, timeout} -> {[], timeout};
        error:{nothing, _} -> {[], dropped}
    after
        gen_tcp:close(Socket)
    end.

told(#{compressed := What, offer := Offer}, Socket) ->
    {101, Fields} = weir_http_websocket_client:upgrade(Socket, ["Sec-WebSocket-Extensions: ", Offer, "\r\n"]),
    case Fields of
        #{<<"sec-websocket-extensions">> := Agreed} ->
            Items = weir_http_websocket_zlib:exchange(Socket, Agreed, What),
            ending(Socket, Items, true);
        #{} ->
            {[], not_agreed}
    end;
told(#{steps := Steps, items := Wanted, closes := Closes}, Socket) ->
    {101, _} = weir_http_websocket_client:upgrade(Socket, ""),
    case steps(Steps, Socket, []) of
        {closed, Items, End} -> {lists:reverse(Items), End};
        Items -> more(Socket, Items, length(Wanted), Closes)
    end.

steps([], _Socket, Items) -> Items;
steps([{send, Bytes} | Steps], Socket, Items) ->
    _ = gen_tcp:send(Socket, Bytes),
    steps(Steps, Socket, Items);
steps([{chops, Size, Bytes} | Steps], Socket, Items) ->
    chops(Socket, Size, iolist_to_binary(Bytes)),
    steps(Steps, Socket, Items);
steps([{items, N} | Steps], Socket, Items) ->
    steps(Steps, Socket, lists:reverse([recv(Socket) || _ <- lists:seq(1, N)], Items));
steps([{exchange, N, Bytes, Expected} | Steps], Socket, Items) ->
    Wrong = [Other || _ <- lists:seq(1, N), Other <- [exchanged(Socket, Bytes)], Other =/= Expected],
    steps(Steps, Socket, Wrong ++ Items);
steps([silence | Steps], Socket, Items) ->
    {error, timeout} = gen_tcp:recv(Socket, 0, ?SILENCE),
    steps(Steps, Socket, Items);
steps([closed | _], Socket, Items) ->
    case items(Socket, Items, infinity) of
        {closed, _, _} = Closed -> Closed;
        More -> {closed, More, open}
    end.

exchanged(Socket, Bytes) ->
    ok = gen_tcp:send(Socket, Bytes),
    recv(Socket).

chops(_Socket, _Size, <<>>) -> ok;
chops(Socket, Size, Bytes) ->
    {Piece, Rest} = split_binary(Bytes, min(Size, byte_size(Bytes))),
    case gen_tcp:send(Socket, Piece) of
        ok -> chops(Socket, Size, Rest);
        {error, _} -> ok
    end.

more(Socket, Items, _Count, {server, _}) -> ended(items(Socket, Items, infinity));
more(Socket, Items, Count, client) ->
    case items(Socket, Items, Count) of
        {closed, _, _} = Closed -> ended(Closed);
        More -> ending(Socket, lists:reverse(More), true)
    end.

ended({closed, Items, End}) -> {lists:reverse(Items), End}.

%% Receives until there are that many items, or the end.
items(_Socket, Items, Count) when length(Items) >= Count -> Items;
items(Socket, Items, Count) ->
    try recv(Socket) of
        {close, Code, _} -> {closed, Items, {close, Code}};
        Item -> items(Socket, [Item | Items], Count)
    catch
        error:{nothing, timeout} -> {closed, Items, timeout};
        error:{nothing, _} -> {closed, Items, dropped}
    end.

ending(Socket, Items, true) ->
    _ = gen_tcp:send(Socket, frame(16#88, <<1000:16>>)),
    case items(Socket, [], infinity) of
        {closed, [], End} ->
            case weir_http_client:is_closed(Socket) of
                true -> {Items, End};
                false -> {Items, not_closed}
            end;
        {closed, More, End} ->
            {Items ++ lists:reverse(More), End}
    end.

%% Returns `ok', `lenient' (allowed by the RFC), `informational', or `failed'.
verdict(#{compressed := {_, _, _, _}}, {[], {close, 1000}}) -> ok;
verdict(#{compressed := _}, _) -> failed;
verdict(#{informational := true}, {_, End}) when End =/= timeout -> informational;
verdict(#{items := Items, closes := client}, {Items, {close, 1000}}) -> ok;
verdict(#{items := Items, closes := {server, Codes}} = Case, {Came, {close, Code}}) ->
    case {lists:member(Code, Codes), Came, Case} of
        {true, Items, _} -> ok;
        {true, Lenient, #{lenient := Lenient}} -> lenient;
        _ -> failed
    end;
%% The RFC allows a server to drop the connection after an error. The client then sees the drop if data is still in
%% flight.
verdict(#{closes := {server, [1000 | _]}}, _) -> failed;
verdict(#{items := Items, closes := {server, _}}, {Items, dropped}) -> lenient;
verdict(#{lenient := Items, closes := {server, _}}, {Items, dropped}) -> lenient;
verdict(_, _) -> failed.
