%% @doc Sends to each client without end, 64 KiB at a time: the service of RFC 864 without its pattern.
%%
%% `send' of gen_tcp blocks while more bytes are queued than the high watermark.
-module(weir_example_chargen).

-export([start/1]).

-define(CHUNK, 65536).

%% @doc Starts the server. Options: see {@link weir_example_acceptors:start/2}.
-spec start(#{port => inet:port_number(), listen => [gen_tcp:listen_option()], _ => _}) ->
    {ok, weir_example_acceptors:server()} | {error, term()}.
start(Options) ->
    Chunk = binary:copy(<<"c">>, ?CHUNK),
    weir_example_acceptors:start(Options, fun(Socket) -> serve(Socket, Chunk) end).

serve(Socket, Chunk) ->
    case gen_tcp:send(Socket, Chunk) of
        ok -> serve(Socket, Chunk);
        {error, _} -> gen_tcp:close(Socket)
    end.
