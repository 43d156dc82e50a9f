%% Without its native library, the drop-in falls back to OTP's own sockets.
-module(weir_fallback_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").

-export([all/0]).
-export([suite/0]).

-export([sockets_are_those_of_otp/1]).

%% Run on the node without the native library.
-export([serve_once/0]).
-export([log/2]).

suite() -> [{timetrap, {minutes, 5}}].

all() -> [sockets_are_those_of_otp].

%% Runs a copy of the library without its `priv' on another node.
sockets_are_those_of_otp(Config) ->
    Ebin = filename:join([?config(priv_dir, Config), "weir", "ebin"]),
    ok = filelib:ensure_dir(filename:join(Ebin, "x")),
    lists:foreach(
        fun(File) -> {ok, _} = file:copy(File, filename:join(Ebin, filename:basename(File))) end,
        filelib:wildcard(filename:join(filename:dirname(code:which(weir_tcp)), "*"))
    ),
    Tests = [filename:dirname(code:which(Module)) || Module <- [?MODULE, weir_test_wait]],
    Boot = weir_test_wait:patience(),
    {ok, Peer, _} = peer:start_link(#{connection => standard_io, wait_boot => Boot, args => ["-pa", Ebin | Tests]}),
    Result = peer:call(Peer, ?MODULE, serve_once, [], weir_test_wait:patience()),
    ok = peer:stop(Peer),
    ?assertEqual({port, <<"through">>, [], 1}, Result).

serve_once() ->
    ok = logger:add_handler(?MODULE, ?MODULE, #{config => self()}),
    {ok, _} = application:ensure_all_started(weir),
    {ok, Listener} = gen_tcp:listen(0, [{tcp_module, weir_tcp}, binary, {active, false}, {ip, {127, 0, 0, 1}}]),
    {ok, Port} = inet:port(Listener),
    {ok, Client} = gen_tcp:connect({127, 0, 0, 1}, Port, [{tcp_module, weir_tcp}, binary]),
    {ok, Socket} = gen_tcp:accept(Listener),
    ok = gen_tcp:send(Client, <<"through">>),
    {ok, Data} = gen_tcp:recv(Socket, 7),
    Kind =
        case is_port(Socket) andalso is_port(Listener) andalso is_port(Client) of
            true -> port;
            false -> other
        end,
    {Kind, Data, weir:pollsets(), warnings()}.

%% Counts the warnings, after waiting for the first.
warnings() ->
    receive
        {log, warning} -> warnings(1)
    after weir_test_wait:patience() -> none
    end.

warnings(Count) ->
    receive
        {log, warning} -> warnings(Count + 1);
        {log, _} -> warnings(Count)
    after 0 -> Count
    end.

%% A logger handler that forwards each event.
log(#{level := Level}, #{config := Pid}) -> Pid ! {log, Level}.
