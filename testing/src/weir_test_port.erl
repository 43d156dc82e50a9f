%% @doc TCP ports for programs that must be told theirs. A server of ours asks the system for a port (port 0) instead.
-module(weir_test_port).

-export([claim/0]).

-define(LOOPBACK, {127, 0, 0, 1}).
%% Below the ports that connections take by themselves.
-define(FIRST, 10_000).
-define(COUNT, 20_000).

%% @doc A TCP port of 127.0.0.1 on which nothing listens. The caller holds it until it ends: no other claim gets it, also not
%% one of another test run on this machine, because the UDP port of the same number is bound meanwhile.
-spec claim() -> inet:port_number().
claim() ->
    Port = ?FIRST + rand:uniform(?COUNT) - 1,
    %% Stock inet, whatever a case has made of the default of TCP.
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
