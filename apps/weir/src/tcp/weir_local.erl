%% @doc The drop-in for local (Unix) sockets: `{tcp_module, weir_local}' replaces OTP's `local_tcp'. It opens sockets
%% of {@link weir_tcp}, which serves all calls on them. gen_tcp calls its functions; those without a description do
%% the same as in {@link weir_tcp}.
%%
%% An address is `{local, Path}'. A path that begins with a null byte is a name in Linux's abstract namespace; with an
%% empty path the kernel chooses such a name. The port is 0. The file of a path stays when its socket closes.
%% Connecting fails with `eagain' while the listener's backlog is full.
-module(weir_local).

-type address() :: inet:local_address().
-type port_of_family() :: 0.

-define(FAMILY, local).

-include("weir_family.hrl").

%% @doc Returns the port, which is 0. With another one connect and listen exit with `badarg'.
-spec getserv(0) -> {ok, 0}.
getserv(Port) -> {ok, Port}.

%% @doc Returns the address itself.
-spec getaddr(inet:local_address()) -> {ok, inet:local_address()}.
getaddr({local, _} = Address) -> {ok, Address}.

%% @doc Returns the address itself.
-spec getaddr(inet:local_address(), term()) -> {ok, inet:local_address()}.
getaddr(Address, _Timer) -> getaddr(Address).

%% @doc Returns the address itself, in a list.
-spec getaddrs(inet:local_address()) -> {ok, [inet:local_address()]}.
getaddrs({local, _} = Address) -> {ok, [Address]}.

%% @doc Returns the address itself, in a list.
-spec getaddrs(inet:local_address(), term()) -> {ok, [inet:local_address()]}.
getaddrs(Address, _Timer) -> getaddrs(Address).

%% @doc As local_tcp: `loopback' is a name that the kernel chooses, and `any' is `undefined'.
-spec translate_ip(Address) -> Address | inet:local_address() | undefined when
    Address :: any | loopback | undefined | inet:local_address().
translate_ip(Address) -> local_tcp:translate_ip(Address).

%% @doc Connects without a timeout.
-spec connect(inet:local_address(), 0, [gen_tcp:connect_option()]) ->
    {ok, inet:socket()} | {error, timeout | inet:posix()}.
connect(Address, Port, Options) -> connect(Address, Port, Options, infinity).
