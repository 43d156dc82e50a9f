%% @doc The drop-in for local (Unix domain) sockets: what `{tcp_module, weir_local}' puts in the place of OTP's
%% `local_tcp'. It opens sockets; they are those of {@link weir_tcp}, which serves every call on them. Its functions are
%% called by gen_tcp; those without a description do what the functions of {@link weir_tcp} with the same name do.
%%
%% An address is `{local, Path}'; a path that begins with a null byte is a name in Linux's abstract namespace, and an
%% empty one has the kernel choose such a name. The port is 0. Nobody removes the file of a path when its socket closes.
%% Connecting fails with `eagain' while the listener's backlog is full.
-module(weir_local).

-type address() :: inet:local_address().
-type port_of_family() :: 0.

-define(FAMILY, local).

-include("weir_family.hrl").

%% @doc There is no port but 0. Another one is a `badarg' of connect and listen.
-spec getserv(0) -> {ok, 0}.
getserv(Port) -> {ok, Port}.

%% @doc The address itself.
-spec getaddr(inet:local_address()) -> {ok, inet:local_address()}.
getaddr({local, _} = Address) -> {ok, Address}.

%% @doc The address itself.
-spec getaddr(inet:local_address(), term()) -> {ok, inet:local_address()}.
getaddr(Address, _Timer) -> getaddr(Address).

%% @doc The address itself, in a list.
-spec getaddrs(inet:local_address()) -> {ok, [inet:local_address()]}.
getaddrs({local, _} = Address) -> {ok, [Address]}.

%% @doc The address itself, in a list.
-spec getaddrs(inet:local_address(), term()) -> {ok, [inet:local_address()]}.
getaddrs(Address, _Timer) -> getaddrs(Address).

%% @doc As local_tcp: `loopback' is a name that the kernel chooses, and `any' is none.
-spec translate_ip(Address) -> Address | inet:local_address() | undefined when
    Address :: any | loopback | undefined | inet:local_address().
translate_ip(Address) -> local_tcp:translate_ip(Address).

%% @doc A connection without a limit of time.
-spec connect(inet:local_address(), 0, [gen_tcp:connect_option()]) ->
    {ok, inet:socket()} | {error, timeout | inet:posix()}.
connect(Address, Port, Options) -> connect(Address, Port, Options, infinity).
