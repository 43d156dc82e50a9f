%% @doc Answers every HTTP request with one file, which the kernel sends from the page cache to the socket.
%%
%% Requests are read by `{packet, http_bin}' and must have no body.
-module(weir_example_file_httpd).

-export([start/1]).

%% @doc Starts the server. `file' is the file; its size is read when a client connects. Other options: see {@link
%% weir_example_acceptors:start/2}. If the file cannot be opened, returns `{not_opened, File, Reason}' at once.
-spec start(#{
    file := file:filename(), port => inet:port_number(), listen => [gen_tcp:listen_option()], _ => _
}) -> {ok, weir_example_acceptors:server()} | {error, term()}.
start(#{file := Name} = Options) ->
    case open(Name) of
        {ok, File, _Size} ->
            ok = file:close(File),
            weir_example_acceptors:start(Options, fun(Socket) ->
                %% A raw file can only be used by the process that opened it.
                case open(Name) of
                    {ok, Own, Size} -> serve(Socket, Own, Size);
                    {error, _} -> gen_tcp:close(Socket)
                end
            end);
        {error, Reason} ->
            {error, {not_opened, Name, Reason}}
    end.

open(Name) ->
    case file:open(Name, [read, raw, binary]) of
        {ok, File} ->
            {ok, Size} = file:position(File, eof),
            {ok, File, Size};
        {error, _} = Error ->
            Error
    end.

serve(Socket, File, Size) ->
    ok = inet:setopts(Socket, [{packet, http_bin}]),
    Head = ["HTTP/1.1 200 OK\r\nContent-Length: ", integer_to_list(Size), "\r\n\r\n"],
    requests(Socket, File, Size, iolist_to_binary(Head)).

requests(Socket, File, Size, Head) ->
    case request(Socket) of
        ok ->
            case answer(Socket, File, Size, Head) of
                ok -> requests(Socket, File, Size, Head);
                {error, _} -> close(Socket, File)
            end;
        {error, _} ->
            close(Socket, File)
    end.

%% Each line of the head is a packet, and so is its end.
request(Socket) ->
    case gen_tcp:recv(Socket, 0) of
        {ok, http_eoh} -> ok;
        {ok, {http_error, _Line}} -> {error, bad_request};
        {ok, _RequestLineOrHeader} -> request(Socket);
        {error, _} = Error -> Error
    end.

answer(Socket, File, Size, Head) ->
    case gen_tcp:send(Socket, Head) of
        ok ->
            case file:sendfile(File, Socket, 0, Size, []) of
                {ok, Size} -> ok;
                %% The file was truncated: the announced length cannot be sent.
                {ok, _Less} -> {error, eof};
                {error, _} = Error -> Error
            end;
        {error, _} = Error ->
            Error
    end.

close(Socket, File) ->
    ok = file:close(File),
    gen_tcp:close(Socket).
