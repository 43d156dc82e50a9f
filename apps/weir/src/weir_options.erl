%% @private
%% @doc The options of gen_tcp: which there are, which values they take, and what each function does about those that
%% are wrong. Checked here once, so that the native side gets only what it knows.
-module(weir_options).

-export([listen/1]).
-export([connect/1]).
-export([settings/1]).

-export_type([setting/0, parsed/0]).

-type setting() :: {atom(), term()} | {raw, integer(), integer(), binary()}.
%% An option as the native side takes it.

-type parsed() :: #{
    ip := any | loopback | inet:ip_address() | undefined,
    port := inet:port_number() | undefined,
    backlog := integer(),
    settings := [setting()]
}.
%% What listen and connect do with their options: where to bind, and what to set before.

%% The backlog of gen_tcp.
-define(BACKLOG, 5).

%% The packet types of gen_tcp.
-define(PACKETS, [raw, 0, 1, 2, 4, asn1, cdr, sunrm, fcgi, tpkt, line, http, httph, http_bin, httph_bin]).

%% @doc Parses the options of `gen_tcp:listen/2'.
-spec listen([term()]) -> {ok, parsed()} | {error, badarg}.
listen(Options) ->
    parse(listen, defaults(inet_default_listen_options, Options)).

%% @doc Parses the options of `gen_tcp:connect/3,4'.
-spec connect([term()]) -> {ok, parsed()} | {error, badarg}.
connect(Options) ->
    parse(connect, defaults(inet_default_connect_options, Options)).

%% @doc Checks the options of `inet:setopts/2', and puts them into the order in which they are set. As in gen_tcp all
%% are checked before any is set, and the first of equal names counts, because it is set last.
-spec settings([term()]) -> {ok, [setting()]} | {error, einval}.
settings(Options) ->
    try
        {ok, lists:reverse(lists:map(fun setting/1, Options))}
    catch
        throw:badarg -> {error, einval}
    end.

%% An operator's defaults for all sockets come first: inet documents these variables of the kernel application. The
%% active mode is not among them.
defaults(Variable, Options) ->
    Defaults =
        case application:get_env(kernel, Variable) of
            {ok, List} when is_list(List) -> List;
            {ok, Option} -> [Option];
            undefined -> []
        end,
    lists:keydelete(active, 1, Defaults) ++ Options.

parse(For, Options) when is_list(Options) ->
    Start = #{ip => undefined, port => undefined, backlog => ?BACKLOG, settings => []},
    try lists:foldl(fun(Option, Parsed) -> option(For, Option, Parsed) end, Start, Options) of
        Parsed = #{settings := Settings} -> {ok, Parsed#{settings := lists:reverse(Settings)}}
    catch
        throw:badarg -> {error, badarg}
    end;
parse(_For, _Options) ->
    {error, badarg}.

option(_For, inet, Parsed) ->
    Parsed;
option(_For, {ip, IP}, Parsed) ->
    case is_ip(IP) of
        true -> Parsed#{ip := IP};
        false -> throw(badarg)
    end;
option(_For, {port, Port}, Parsed) when is_integer(Port), Port >= 0, Port =< 65535 ->
    Parsed#{port := Port};
option(listen, {backlog, Backlog}, Parsed) when is_integer(Backlog), Backlog >= -1, Backlog =< 16#7fffffff ->
    Parsed#{backlog := Backlog};
option(_For, Option, Parsed = #{settings := Settings}) ->
    case setting(Option) of
        Setting = {raw, _, _, _} ->
            Parsed#{settings := [Setting | Settings]};
        Setting = {Name, _} ->
            %% The last of equal names counts: `{active, N}' twice is not a sum.
            Parsed#{settings := [Setting | lists:keydelete(Name, 1, Settings)]}
    end.

is_ip(any) -> true;
is_ip(loopback) -> true;
is_ip({A, B, C, D}) -> lists:all(fun(X) -> is_integer(X) andalso X >= 0 andalso X =< 255 end, [A, B, C, D]);
is_ip(_) -> false.

setting(binary) -> {mode, binary};
setting(list) -> {mode, list};
setting({raw, {Level, Option, Value}}) -> setting({raw, Level, Option, Value});
setting(Raw = {raw, Level, Option, Value}) ->
    case is_int32(Level) andalso is_int32(Option) andalso is_binary(Value) of
        true -> Raw;
        false -> throw(badarg)
    end;
setting(Setting = {Name, Value}) when is_atom(Name) ->
    case is_value(Name, Value) of
        true -> Setting;
        false -> throw(badarg)
    end;
setting(_) ->
    throw(badarg).

is_value(active, Value) -> is_boolean(Value) orelse Value =:= once orelse within(Value, -32768, 32767);
is_value(mode, Value) -> Value =:= binary orelse Value =:= list;
is_value(packet, Value) -> lists:member(Value, ?PACKETS);
is_value(packet_size, Value) -> is_uint32(Value);
is_value(header, Value) -> is_uint32(Value);
is_value(line_delimiter, Value) -> is_int32(Value);
is_value(deliver, Value) -> Value =:= term orelse Value =:= port;
is_value(linger, {On, Seconds}) -> is_boolean(On) andalso is_int32(Seconds);
is_value(send_timeout, Value) -> Value =:= infinity orelse is_uint32(Value);
is_value(Name, Value) when
    Name =:= recbuf;
    Name =:= sndbuf;
    Name =:= buffer;
    Name =:= high_watermark;
    Name =:= low_watermark;
    Name =:= high_msgq_watermark;
    Name =:= low_msgq_watermark
->
    is_int32(Value);
is_value(Name, Value) when
    Name =:= nodelay;
    Name =:= reuseaddr;
    Name =:= keepalive;
    Name =:= send_timeout_close;
    Name =:= delay_send;
    Name =:= exit_on_close;
    Name =:= show_econnreset
->
    is_boolean(Value);
is_value(_, _) ->
    false.

is_int32(Value) -> within(Value, -16#80000000, 16#7fffffff).

is_uint32(Value) -> within(Value, 0, 16#ffffffff).

within(Value, Min, Max) -> is_integer(Value) andalso Value >= Min andalso Value =< Max.
