%% @doc The drop-in for IPv6: what `{tcp_module, weir_tcp6}' puts in the place of OTP's `inet6_tcp'. It opens sockets and
%% resolves names; the sockets are those of {@link weir_tcp}, which serves every call on them. Its functions are called by
%% gen_tcp; those without a description do what the functions of {@link weir_tcp} with the same name do.
-module(weir_tcp6).

-type address() :: inet:ip6_address().
-type port_of_family() :: inet:port_number().

-define(FAMILY, inet6).

-include("weir_family.hrl").

%% @doc The port number of a service, as inet6_tcp.
-spec getserv(inet:port_number() | atom()) -> {ok, inet:port_number()} | {error, einval}.
getserv(Port) -> inet6_tcp:getserv(Port).

%% @doc An IPv6 address of a host, as inet6_tcp.
-spec getaddr(inet:ip_address() | inet:hostname()) -> {ok, inet:ip6_address()} | {error, inet:posix()}.
getaddr(Address) -> inet6_tcp:getaddr(Address).

%% @doc An IPv6 address of a host within a timer of inet's, as inet6_tcp.
-spec getaddr(inet:ip_address() | inet:hostname(), term()) -> {ok, inet:ip6_address()} | {error, inet:posix()}.
getaddr(Address, Timer) -> inet6_tcp:getaddr(Address, Timer).

%% @doc The IPv6 addresses of a host, as inet6_tcp.
-spec getaddrs(inet:ip_address() | inet:hostname()) -> {ok, [inet:ip6_address()]} | {error, inet:posix()}.
getaddrs(Address) -> inet6_tcp:getaddrs(Address).

%% @doc The IPv6 addresses of a host within a timer of inet's, as inet6_tcp.
-spec getaddrs(inet:ip_address() | inet:hostname(), term()) -> {ok, [inet:ip6_address()]} | {error, inet:posix()}.
getaddrs(Address, Timer) -> inet6_tcp:getaddrs(Address, Timer).

%% @doc `any' and `loopback' as IPv6 addresses, as inet6_tcp.
-spec translate_ip(any | loopback | inet:ip_address() | undefined) -> inet:ip_address() | undefined.
translate_ip(IP) -> inet6_tcp:translate_ip(IP).

%% @doc A connection to a socket address; with an address and a port, {@link connect/4} without a limit of time.
-spec connect
    (inet:ip6_address(), inet:port_number(), [gen_tcp:connect_option()]) ->
        {ok, inet:socket()} | {error, timeout | inet:posix()};
    (socket:sockaddr_in6(), [gen_tcp:connect_option()], timeout()) ->
        {ok, inet:socket()} | {error, timeout | inet:posix()}.
connect(Address, Options, Timeout) when is_map(Address) -> weir_open:connect(inet6, Address, Options, Timeout);
connect(Address, Port, Options) -> connect(Address, Port, Options, infinity).
