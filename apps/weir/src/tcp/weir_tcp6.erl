%% @doc The drop-in for IPv6: `{tcp_module, weir_tcp6}' replaces OTP's `inet6_tcp'. It resolves names and opens
%% sockets of {@link weir_tcp}, which serves all calls on them. gen_tcp calls its functions; those without a
%% description do the same as in {@link weir_tcp}.
-module(weir_tcp6).

-type address() :: inet:ip6_address().
-type port_of_family() :: inet:port_number().

-define(FAMILY, inet6).

-include("weir_family.hrl").

%% @doc Returns the port number of a service, as inet6_tcp.
-spec getserv(inet:port_number() | atom()) -> {ok, inet:port_number()} | {error, einval}.
getserv(Port) -> inet6_tcp:getserv(Port).

%% @doc Returns an IPv6 address of a host, as inet6_tcp.
-spec getaddr(inet:ip_address() | inet:hostname()) -> {ok, inet:ip6_address()} | {error, inet:posix()}.
getaddr(Address) -> inet6_tcp:getaddr(Address).

%% @doc Returns an IPv6 address of a host with a timer of inet, as inet6_tcp.
-spec getaddr(inet:ip_address() | inet:hostname(), term()) -> {ok, inet:ip6_address()} | {error, inet:posix()}.
getaddr(Address, Timer) -> inet6_tcp:getaddr(Address, Timer).

%% @doc Returns the IPv6 addresses of a host, as inet6_tcp.
-spec getaddrs(inet:ip_address() | inet:hostname()) -> {ok, [inet:ip6_address()]} | {error, inet:posix()}.
getaddrs(Address) -> inet6_tcp:getaddrs(Address).

%% @doc Returns the IPv6 addresses of a host with a timer of inet, as inet6_tcp.
-spec getaddrs(inet:ip_address() | inet:hostname(), term()) -> {ok, [inet:ip6_address()]} | {error, inet:posix()}.
getaddrs(Address, Timer) -> inet6_tcp:getaddrs(Address, Timer).

%% @doc Translates `any' and `loopback' to IPv6 addresses, as inet6_tcp.
-spec translate_ip(any | loopback | inet:ip_address() | undefined) -> inet:ip_address() | undefined.
translate_ip(IP) -> inet6_tcp:translate_ip(IP).

%% @doc Connects to a socket address; with an address and a port, as {@link connect/4} without a timeout.
-spec connect
    (inet:ip6_address(), inet:port_number(), [gen_tcp:connect_option()]) ->
        {ok, inet:socket()} | {error, timeout | inet:posix()};
    (socket:sockaddr_in6(), [gen_tcp:connect_option()], timeout()) ->
        {ok, inet:socket()} | {error, timeout | inet:posix()}.
connect(Address, Options, Timeout) when is_map(Address) -> weir_open:connect(inet6, Address, Options, Timeout);
connect(Address, Port, Options) -> connect(Address, Port, Options, infinity).
