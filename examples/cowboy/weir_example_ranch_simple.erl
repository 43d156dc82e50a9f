%% @doc Answers any data with `ok', as `simple' does, behind ranch.
-module(weir_example_ranch_simple).

-export([start/1]).
-export([start_link/3]).

-define(ACCEPTORS, 100).
-define(TIMEOUT, 5000).

%% @doc Starts the server. `sleep' is that of {@link weir_example_simple:start/1}, `acceptors' the number of acceptors
%% (default: 100). Other options: see {@link weir_example_ranch_servers:start/4}.
-spec start(#{acceptors => pos_integer(), sleep => pos_integer(), atom() => term()}) ->
    {ok, #{port := inet:port_number(), stop := fun(() -> ok)}} | {error, term()}.
start(Options) ->
    Wait =
        case Options of
            #{sleep := Pause} -> {0, Pause};
            #{} -> {?TIMEOUT, none}
        end,
    weir_example_ranch_servers:start(Options, maps:get(acceptors, Options, ?ACCEPTORS), ?MODULE, Wait).

%% @private
-spec start_link(term(), module(), {timeout(), Pause :: pos_integer() | none}) -> {ok, pid()}.
start_link(Listener, Transport, Wait) ->
    {ok, spawn_link(fun() ->
        {ok, Socket} = ranch:handshake(Listener),
        serve(Socket, Transport, Wait)
    end)}.

serve(Socket, Transport, {Timeout, Pause} = Wait) ->
    case Transport:recv(Socket, 0, Timeout) of
        {ok, _Request} ->
            _ = Transport:send(Socket, <<"ok">>),
            serve(Socket, Transport, Wait);
        {error, timeout} when Pause =/= none ->
            timer:sleep(Pause),
            serve(Socket, Transport, Wait);
        {error, _} ->
            Transport:close(Socket)
    end.
