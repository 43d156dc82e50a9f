%% @private
%% @doc The options of gen_tcp: names, allowed values, and how each function handles wrong ones. They are checked
%% once, here, so the native side gets only valid options.
-module(weir_options).

-export([listen/1]).
-export([connect/1]).
-export([settings/1]).
-export([shown/1]).
-export([socket_address/1]).

-export_type([setting/0, parsed/0]).

-type setting() :: {atom(), term()} | {raw, integer(), integer(), binary()}.
%% An option for the native side.

-type parsed() :: #{
    family := weir_address:family() | undefined,
    ip := weir_address:address(),
    port := inet:port_number() | undefined,
    descriptor := new | {fd, non_neg_integer()} | {netns, binary()},
    backlog := integer(),
    settings := [setting()]
}.
%% Parsed options of listen and connect: the origin of the descriptor, the address to bind it to, and the settings to
%% apply before, in this order.

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

%% @doc Completes an address of `gen_tcp:connect/2,3', or of `{ifaddr, Address}', with defaults.
-spec socket_address(map()) -> {ok, weir_address:address()} | {error, badarg}.
socket_address(Address) ->
    Defaults =
        case Address of
            #{family := inet6} -> #{addr => any, port => 0, flowinfo => 0, scope_id => 0};
            _ -> #{addr => any, port => 0}
        end,
    Full = maps:merge(Defaults, Address),
    case weir_address:is_valid(Full) of
        true -> {ok, Full};
        false -> {error, badarg}
    end.

%% @doc Checks the options of `inet:setopts/2', and returns them in the order in which they are set. As in gen_tcp,
%% all are checked before any is set, and the first of equal names counts, because it is set last.
-spec settings([term()]) -> {ok, [setting()]} | {error, einval}.
settings(Options) ->
    try
        {ok, lists:reverse(lists:map(fun setting/1, Options))}
    catch
        throw:badarg -> {error, einval}
    end.

%% @doc Converts the values of options to those of `inet:getopts/2': paths become strings where possible.
-spec shown([tuple()]) -> [tuple()].
shown(Values) -> lists:map(fun shown_value/1, Values).

shown_value({netns, Path}) ->
    case unicode:characters_to_list(Path, file:native_name_encoding()) of
        String when is_list(String) -> {netns, String};
        _ -> {netns, Path}
    end;
shown_value(Value) ->
    Value.

%% The kernel application's defaults for all sockets, which inet documents, come first. As in gen_tcp `active' is not
%% among them.
defaults(Variable, Options) ->
    Defaults =
        case application:get_env(kernel, Variable) of
            {ok, List} when is_list(List) -> List;
            {ok, Option} -> [Option];
            undefined -> []
        end,
    lists:keydelete(active, 1, Defaults) ++ Options.

%% Settings are accumulated in reverse and applied from the end of the list, as in gen_tcp.
parse(For, Options) when is_list(Options) ->
    Start = #{
        family => undefined, ip => undefined, port => undefined, descriptor => new, backlog => ?BACKLOG, settings => []
    },
    try
        {ok, lists:foldl(fun(Option, Parsed) -> option(For, Option, Parsed) end, Start, Options)}
    catch
        throw:badarg -> {error, badarg}
    end;
parse(_For, _Options) ->
    {error, badarg}.

option(_For, Family, Parsed) when Family =:= inet; Family =:= inet6; Family =:= local ->
    Parsed#{family := Family};
option(_For, {ifaddr, Address}, Parsed) when is_map(Address) ->
    case socket_address(Address) of
        {ok, Full} -> Parsed#{ip := Full};
        {error, badarg} -> throw(badarg)
    end;
%% Changes a part of an earlier socket address.
option(_For, {ip, IP}, Parsed = #{ip := Address}) when is_map(Address) ->
    Parsed#{ip := valid(Address#{addr := IP})};
option(_For, {port, Port}, Parsed = #{ip := Address}) when is_map(Address) ->
    Parsed#{ip := valid(Address#{port := Port})};
option(_For, {Name, IP}, Parsed) when Name =:= ip; Name =:= ifaddr ->
    Parsed#{ip := valid(IP)};
option(_For, {port, Port}, Parsed) when is_integer(Port), Port >= 0, Port =< 65535 ->
    Parsed#{port := Port};
%% An invalid descriptor is ignored, as in gen_tcp.
option(_For, {fd, Fd}, Parsed) when is_integer(Fd), Fd >= 0, Fd =< 16#7fffffff ->
    Parsed#{descriptor := {fd, Fd}};
option(_For, {fd, _}, Parsed) ->
    Parsed#{descriptor := new};
option(_For, {netns, Path}, Parsed) ->
    {netns, Binary} = setting({netns, Path}),
    Parsed#{descriptor := {netns, Binary}};
option(listen, {backlog, Backlog}, Parsed) when is_integer(Backlog), Backlog >= -1, Backlog =< 16#7fffffff ->
    Parsed#{backlog := Backlog};
option(For, Option, Parsed = #{settings := Settings}) ->
    case setting(Option) of
        Setting = {raw, _, _, _} ->
            Parsed#{settings := [Setting | Settings]};
        Setting = {Name, _} ->
            is_for(For, Name) orelse throw(badarg),
            %% The last of equal names counts: two `{active, N}' do not add up.
            Parsed#{settings := [Setting | lists:keydelete(Name, 1, Settings)]}
    end.

%% gen_tcp takes some options only in setopts.
is_for(_For, dontroute) -> false;
is_for(_For, nopush) -> false;
is_for(listen, line_delimiter) -> false;
is_for(connect, ipv6_v6only) -> false;
is_for(_For, _Name) -> true.

valid(Address) ->
    case weir_address:is_valid(Address) of
        true -> Address;
        false -> throw(badarg)
    end.

setting(binary) -> {mode, binary};
setting(list) -> {mode, list};
setting({raw, {Level, Option, Value}}) -> setting({raw, Level, Option, Value});
setting(Raw = {raw, Level, Option, Value}) ->
    case is_int32(Level) andalso is_int32(Option) andalso is_binary(Value) of
        true -> Raw;
        false -> throw(badarg)
    end;
setting({netns, Path}) when is_list(Path) ->
    try unicode:characters_to_binary(Path, unicode, file:native_name_encoding()) of
        Binary when is_binary(Binary) -> {netns, Binary};
        _ -> throw(badarg)
    catch
        error:badarg -> throw(badarg)
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
    Name =:= low_msgq_watermark;
    Name =:= priority;
    Name =:= tos;
    Name =:= tclass;
    Name =:= ttl;
    Name =:= keepcnt;
    Name =:= keepidle;
    Name =:= keepintvl;
    Name =:= user_timeout
->
    is_int32(Value);
is_value(Name, Value) when
    Name =:= nodelay;
    Name =:= reuseaddr;
    Name =:= keepalive;
    Name =:= send_timeout_close;
    Name =:= delay_send;
    Name =:= exit_on_close;
    Name =:= show_econnreset;
    Name =:= recvtos;
    Name =:= recvtclass;
    Name =:= recvttl;
    Name =:= ipv6_v6only;
    Name =:= dontroute;
    Name =:= nopush;
    Name =:= reuseport;
    Name =:= reuseport_lb;
    Name =:= exclusiveaddruse;
    Name =:= read_ahead;
    Name =:= debug
->
    is_boolean(Value);
is_value(Name, Value) when Name =:= bind_to_device; Name =:= netns ->
    is_binary(Value);
is_value(_, _) ->
    false.

is_int32(Value) -> within(Value, -16#80000000, 16#7fffffff).

is_uint32(Value) -> within(Value, 0, 16#ffffffff).

within(Value, Min, Max) -> is_integer(Value) andalso Value >= Min andalso Value =< Max.
