%% @doc The drop-in for IPv6: what `{tcp_module, weir_tcp6}' puts in the place of OTP's `inet6_tcp'. It opens sockets and
%% resolves names; the sockets are those of {@link weir_tcp}, which serves every call on them.
-module(weir_tcp6).

-export([getserv/1]).
-export([getaddr/1]).
-export([getaddr/2]).
-export([getaddrs/1]).
-export([getaddrs/2]).
-export([translate_ip/1]).

-export([listen/2]).
-export([accept/1]).
-export([accept/2]).
-export([connect/3]).
-export([connect/4]).
-export([fdopen/2]).

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

%% @doc A listening socket, as `gen_tcp:listen/2' with `inet6'. Exits with `badarg' for an option or a value that is not
%% known.
-spec listen(inet:port_number(), [gen_tcp:listen_option()]) ->
    {ok, inet:socket()} | {error, system_limit | inet:posix()}.
listen(Port, Options) -> weir_open:listen(inet6, Port, Options).

%% @doc The next connection, as {@link weir_tcp:accept/2} without a limit of time.
-spec accept(weir_tcp:socket()) -> {ok, weir_tcp:socket()} | {error, closed | system_limit | inet:posix()}.
accept(Listener) -> weir_tcp:accept(Listener, infinity).

%% @doc The next connection, as {@link weir_tcp:accept/2}.
-spec accept(weir_tcp:socket(), timeout()) ->
    {ok, weir_tcp:socket()} | {error, closed | timeout | system_limit | inet:posix()}.
accept(Listener, Timeout) -> weir_tcp:accept(Listener, Timeout).

%% @doc A connection to a socket address; with an address and a port, {@link connect/4} without a limit of time.
-spec connect
    (inet:ip6_address(), inet:port_number(), [gen_tcp:connect_option()]) ->
        {ok, inet:socket()} | {error, timeout | inet:posix()};
    (socket:sockaddr_in6(), [gen_tcp:connect_option()], timeout()) ->
        {ok, inet:socket()} | {error, timeout | inet:posix()}.
connect(Address, Options, Timeout) when is_map(Address) -> weir_open:connect(inet6, Address, Options, Timeout);
connect(Address, Port, Options) -> connect(Address, Port, Options, infinity).

%% @doc A connection to one address, as `gen_tcp:connect/4' with `inet6'. Exits with `badarg' for an option or a value
%% that is not known.
-spec connect(inet:ip6_address(), inet:port_number(), [gen_tcp:connect_option()], timeout()) ->
    {ok, inet:socket()} | {error, timeout | inet:posix()}.
connect(Address, Port, Options, Timeout) when Timeout =:= infinity; is_integer(Timeout), Timeout >= 0 ->
    weir_open:connect(inet6, Address, Port, Options, Timeout).

%% @doc A socket around a descriptor that was opened elsewhere, as `inet6_tcp:fdopen/2'.
-spec fdopen(non_neg_integer(), [gen_tcp:option()]) -> {ok, inet:socket()} | {error, inet:posix()}.
fdopen(Fd, Options) -> weir_open:fdopen(inet6, Fd, Options).
