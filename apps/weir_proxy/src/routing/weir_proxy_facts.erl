%% @private
%% @doc Finds the facts about a connection that rules need, within a timeout.
-module(weir_proxy_facts).

-export([of_connection/3]).
-export([of_first_bytes/2]).
-export([in_time/3]).

%% @doc Returns the facts that need no bytes: the client's address, and the local port if that is wanted.
-spec of_connection(weir_tcp:socket(), weir_tcp:name(), WantsPort :: boolean()) -> weir_proxy_rules:facts().
of_connection(Client, {local, _}, WantsPort) -> port(WantsPort, Client, #{});
of_connection(Client, {Address, _Port}, WantsPort) -> port(WantsPort, Client, #{address => Address}).

port(false, _Client, Facts) ->
    Facts;
port(true, Client, Facts) ->
    case inet:sockname(Client) of
        {ok, {_, Port}} when is_integer(Port) -> Facts#{port => Port};
        _ -> Facts
    end.

%% @doc Returns the facts in the first bytes, which stay in the socket. The protocol is `none' if the client sends
%% nothing within `Timeout', and `unknown' if it stops in the middle.
-spec of_first_bytes(weir_tcp:socket(), timeout()) -> {ok, weir_proxy_rules:facts()} | {error, closed | inet:posix()}.
of_first_bytes(Client, Timeout) ->
    read(Client, erlang:monotonic_time(millisecond) + Timeout, <<>>, 1).

read(Client, Deadline, Before, Needed) ->
    case gen_tcp:recv(Client, 0, max(0, Deadline - erlang:monotonic_time(millisecond))) of
        {ok, Data} ->
            All = <<Before/binary, Data/binary>>,
            case byte_size(All) < Needed of
                true -> read(Client, Deadline, All, Needed);
                false -> look(Client, Deadline, All)
            end;
        {error, timeout} when Before =:= <<>> -> {ok, #{protocol => none}};
        {error, timeout} -> known(Client, Before, #{protocol => unknown});
        %% The client has half-closed: its bytes still go to a server.
        {error, closed} when Before =/= <<>> -> known(Client, Before, #{protocol => unknown});
        {error, _} = Error -> Error
    end.

look(Client, Deadline, Bytes) ->
    case weir_proxy_first_bytes:classify(Bytes) of
        {ok, Facts} ->
            known(Client, Bytes, Facts);
        more ->
            case byte_size(Bytes) < weir_proxy_first_bytes:limit() of
                true ->
                    read(
                        Client,
                        Deadline,
                        Bytes,
                        min(weir_proxy_first_bytes:limit(), weir_proxy_first_bytes:needed(Bytes))
                    );
                false ->
                    known(Client, Bytes, #{protocol => unknown})
            end
    end.

known(Client, Bytes, Facts) ->
    case gen_tcp:unrecv(Client, Bytes) of
        ok -> {ok, Facts};
        {error, _} = Error -> Error
    end.

%% @doc Calls a user's fun, and kills the caller if that does not return within `Timeout'. If the caller dies during
%% the call, `Ended' is called in another process: with `killed' after the timeout, with `crashed' otherwise, such as
%% through a link.
-spec in_time(fun(() -> Result), timeout(), Ended :: fun((killed | crashed) -> ok)) -> Result.
in_time(Fun, Timeout, Ended) ->
    Caller = self(),
    Guard = spawn(fun() -> guard(Caller, monitor(process, Caller), Timeout, Ended) end),
    try
        Fun()
    after
        Guard ! {done, Caller},
        %% After this message the guard cannot kill this process any more.
        receive
            {Guard, released} -> ok
        end
    end.

guard(Caller, Monitor, Timeout, Ended) ->
    receive
        {done, Caller} -> Caller ! {self(), released};
        {'DOWN', Monitor, process, _, _} -> Ended(crashed)
    after Timeout ->
        exit(Caller, kill),
        Ended(killed)
    end.
