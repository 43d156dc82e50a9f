%% @doc Chooses TCP ports for programs that need a fixed one. Our own servers listen on port 0 instead.
-module(weir_test_port).

-export([claim/0]).

-define(LOOPBACK, {127, 0, 0, 1}).
%% Below the range of ephemeral ports.
-define(FIRST, 10_000).
-define(COUNT, 20_000).

%% @doc Returns a TCP port of 127.0.0.1 on which nothing listens. The caller holds it until it ends: the UDP port of
%% the same number stays bound, so no other claim gets it, not even in another test run on this machine.
-spec claim() -> inet:port_number().
claim() ->
    Port = ?FIRST + rand:uniform(?COUNT) - 1,
    %% Stock inet, even if a case has changed the default module of TCP.
    case gen_udp:open(Port, [{ip, ?LOOPBACK}]) of
        {ok, Claim} ->
            case gen_tcp:listen(Port, [{ip, ?LOOPBACK}]) of
                {ok, Listen} ->
                    ok = gen_tcp:close(Listen),
                    Port;
                {error, _} ->
                    ok = gen_udp:close(Claim),
                    claim()
            end;
        {error, eaddrinuse} ->
            claim()
    end.
