%% @doc The drop-in for local (Unix domain) sockets: what `{tcp_module, weir_local}' puts in the place of OTP's
%% `local_tcp'. It opens sockets; they are those of {@link weir_tcp}, which serves every call on them.
%%
%% An address is `{local, Path}'; a path that begins with a null byte is a name in Linux's abstract namespace, and an
%% empty one has the kernel choose such a name. The port is 0. Nobody removes the file of a path when its socket closes.
-module(weir_local).

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

%% @doc A listening socket, as `gen_tcp:listen/2' with `{ifaddr, {local, Path}}'. Exits with `badarg' for an option or a
%% value that is not known.
-spec listen(0, [gen_tcp:listen_option()]) -> {ok, inet:socket()} | {error, system_limit | inet:posix()}.
listen(Port, Options) -> weir_open:listen(local, Port, Options).

%% @doc The next connection, as {@link weir_tcp:accept/2} without a limit of time.
-spec accept(weir_tcp:socket()) -> {ok, weir_tcp:socket()} | {error, closed | system_limit | inet:posix()}.
accept(Listener) -> weir_tcp:accept(Listener, infinity).

%% @doc The next connection, as {@link weir_tcp:accept/2}.
-spec accept(weir_tcp:socket(), timeout()) ->
    {ok, weir_tcp:socket()} | {error, closed | timeout | system_limit | inet:posix()}.
accept(Listener, Timeout) -> weir_tcp:accept(Listener, Timeout).

%% @doc {@link connect/4} without a limit of time.
-spec connect(inet:local_address(), 0, [gen_tcp:connect_option()]) ->
    {ok, inet:socket()} | {error, timeout | inet:posix()}.
connect(Address, Port, Options) -> connect(Address, Port, Options, infinity).

%% @doc A connection, as `gen_tcp:connect/4' with `local'. Exits with `badarg' for an option or a value that is not
%% known. `{error, eagain}': the listener's backlog is full.
-spec connect(inet:local_address(), 0, [gen_tcp:connect_option()], timeout()) ->
    {ok, inet:socket()} | {error, timeout | inet:posix()}.
connect(Address, Port, Options, Timeout) when Timeout =:= infinity; is_integer(Timeout), Timeout >= 0 ->
    weir_open:connect(local, Address, Port, Options, Timeout).

%% @doc A socket around a descriptor that was opened elsewhere, as `local_tcp:fdopen/2'.
-spec fdopen(non_neg_integer(), [gen_tcp:option()]) -> {ok, inet:socket()} | {error, inet:posix()}.
fdopen(Fd, Options) -> weir_open:fdopen(local, Fd, Options).
