%% @doc Scenario `proxy': echo through a proxy to a backend that the generator runs, to measure the proxy.
-module(weir_load_proxy).
-behaviour(weir_load_scenario).

-export([describe/0]).
-export([init/1]).
-export([connect/2]).
-export([request/2]).
-export([response/2]).
-export([done/1]).

-spec describe() -> weir_load_scenario:description().
describe() ->
    #{options := Options} = Echo = weir_load_echo:describe(),
    Echo#{
        summary => "echo through a proxy to a backend that the generator runs",
        help => "The backend listens on 127.0.0.1. The target is the proxy, which must have it as a server.\n",
        options => [
            #{name => backend, type => {integer, 1, 65535}, value => "PORT",
                help => "port of the backend (required)"}
            | Options
        ]
    }.

-spec init(#{backend => inet:port_number(), atom() => term()}) ->
    {ok, weir_load_scenario:config()} | {error, iodata()}.
init(#{backend := Port} = Options) ->
    case gen_tcp:listen(Port, [binary, {ip, {127, 0, 0, 1}}, {reuseaddr, true}, {nodelay, true}, {backlog, 1024},
                               {active, false}]) of
        {ok, Listener} ->
            _ = [spawn_link(fun() -> accept(Listener) end) || _ <- lists:seq(1, 4)],
            weir_load_echo:init(Options);
        {error, Reason} ->
            {error, ["--backend ", integer_to_list(Port), ": ", inet:format_error(Reason), "; a free port is needed"]}
    end;
init(_Options) ->
    {error, "proxy needs --backend PORT, the port of its backend"}.

accept(Listener) ->
    case gen_tcp:accept(Listener) of
        {ok, Socket} ->
            _ = spawn_link(fun() -> accept(Listener) end),
            send_back(Socket);
        {error, closed} ->
            ok;
        {error, _Transient} ->
            accept(Listener)
    end.

send_back(Socket) ->
    case gen_tcp:recv(Socket, 0) of
        {ok, Data} ->
            _ = gen_tcp:send(Socket, Data),
            send_back(Socket);
        {error, _} ->
            gen_tcp:close(Socket)
    end.

-spec connect(pos_integer(), weir_load_scenario:config()) -> {ok, weir_load_scenario:connection()}.
connect(Number, Config) -> weir_load_echo:connect(Number, Config).

-spec request(pos_integer(), weir_load_scenario:connection()) -> {ok, iodata(), weir_load_scenario:connection()}.
request(Sequence, Connection) -> weir_load_echo:request(Sequence, Connection).

-spec response(binary(), weir_load_scenario:connection()) ->
    {ok, [weir_load_scenario:event()], weir_load_scenario:connection()} | {error, wrong_reply}.
response(Data, Connection) -> weir_load_echo:response(Data, Connection).

-spec done(weir_load_scenario:connection()) -> ok.
done(Connection) -> weir_load_echo:done(Connection).
