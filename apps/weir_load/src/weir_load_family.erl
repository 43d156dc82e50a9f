%% @doc What follows from the address of the server: its family, and the addresses that connections come from.
-module(weir_load_family).

-export([source/2]).
-export([options/1]).

%% Connections from one address to one port. Linux has some 28,000 ports for them and tries one half of these first:
%% past that, each connect looks through thousands of ports that are taken.
-define(PER_ADDRESS, 10_000).

%% @doc The option of gen_tcp that OTP's own module needs for an address.
-spec options(inet:ip_address()) -> [inet | inet6].
options(Address) when tuple_size(Address) =:= 4 -> [inet];
options(_Address) -> [inet6].

%% @doc Options for the connection of a number. All of 127.0.0.0/8 is this machine, so that to it every ten thousand
%% come from an address of their own; from elsewhere there is one, and so many connections as it has ports.
-spec source(inet:ip_address(), Number :: pos_integer()) -> [{ip, inet:ip4_address()}].
source({127, _, _, _}, Number) when Number >= ?PER_ADDRESS ->
    Bunch = Number div ?PER_ADDRESS,
    [{ip, {127, 1, Bunch div 250 rem 256, 1 + Bunch rem 250}}];
source(_Address, _Number) ->
    [].
