%% @private
%% @doc Asks a connection for what rules want to know, within a time.
-module(weir_proxy_facts).

-export([of_connection/3]).
-export([of_first_bytes/2]).
-export([in_time/3]).

%% @doc What is known without a byte: where the client is, and which port it has called, if that is wanted.
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

%% @doc What the first bytes say. They stay in the socket. A client that says nothing in time has the protocol `none'; one that stops
%% in the middle has `unknown'.
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
        %% The end of its direction: the bytes before may still be for a server.
        {error, closed} when Before =/= <<>> -> known(Client, Before, #{protocol => unknown});
        {error, _} = Error -> Error
    end.

look(Client, Deadline, Bytes) ->
    case weir_proxy_first_bytes:classify(Bytes) of
        {ok, Facts} ->
            known(Client, Bytes, Facts);
        more ->
            case byte_size(Bytes) < weir_proxy_first_bytes:limit() of
                true -> read(Client, Deadline, Bytes, min(weir_proxy_first_bytes:limit(), weir_proxy_first_bytes:needed(Bytes)));
                false -> known(Client, Bytes, #{protocol => unknown})
            end
    end.

known(Client, Bytes, Facts) ->
    case gen_tcp:unrecv(Client, Bytes) of
        ok -> {ok, Facts};
        {error, _} = Error -> Error
    end.

%% @doc Calls a fun of somebody else's. The caller is killed if it has not returned in time. `Ended' is called, in another process, when the
%% caller has not lived to see its return: with `killed' then, with `crashed' if it was ended otherwise, such as by a link.
-spec in_time(fun(() -> Result), timeout(), Ended :: fun((killed | crashed) -> ok)) -> Result.
in_time(Fun, Timeout, Ended) ->
    Caller = self(),
    Guard = spawn(fun() -> guard(Caller, monitor(process, Caller), Timeout, Ended) end),
    try
        Fun()
    after
        Guard ! {done, Caller},
        %% From here on it is not killed: the guard has said so.
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
