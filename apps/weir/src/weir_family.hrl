%% Shared by the modules of families: they open sockets of ?FAMILY, which weir_tcp then serves. gen_tcp calls them. A
%% module that includes this defines the types `address()' and `port_of_family()', and resolves names itself.

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

%% Opens a listening socket, as `gen_tcp:listen/2' with the family. Exits with `badarg' for an unknown option or a
%% wrong value.
-spec listen(port_of_family(), [gen_tcp:listen_option()]) ->
    {ok, inet:socket()} | {error, system_limit | inet:posix()}.
listen(Port, Options) -> weir_open:listen(?FAMILY, Port, Options).

%% Accepts a connection, as weir_tcp:accept/2 without a timeout.
-spec accept(weir_tcp:socket()) -> {ok, weir_tcp:socket()} | {error, closed | system_limit | inet:posix()}.
accept(Listener) -> weir_tcp:accept(Listener, infinity).

%% Accepts a connection, as weir_tcp:accept/2.
-spec accept(weir_tcp:socket(), timeout()) ->
    {ok, weir_tcp:socket()} | {error, closed | timeout | system_limit | inet:posix()}.
accept(Listener, Timeout) -> weir_tcp:accept(Listener, Timeout).

%% Connects to one address, as `gen_tcp:connect/4' with the family. Exits with `badarg' for an unknown option or a
%% wrong value.
-spec connect(address(), port_of_family(), [gen_tcp:connect_option()], timeout()) ->
    {ok, inet:socket()} | {error, timeout | inet:posix()}.
connect(Address, Port, Options, Timeout) when Timeout =:= infinity; is_integer(Timeout), Timeout >= 0 ->
    weir_open:connect(?FAMILY, Address, Port, Options, Timeout).

%% Makes a socket of an open descriptor, as OTP's module of the family.
-spec fdopen(non_neg_integer(), [gen_tcp:option()]) -> {ok, inet:socket()} | {error, inet:posix()}.
fdopen(Fd, Options) -> weir_open:fdopen(?FAMILY, Fd, Options).
