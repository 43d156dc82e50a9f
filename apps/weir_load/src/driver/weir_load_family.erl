%% @doc Socket options that follow from the address of the server: the address family, and the source addresses.
-module(weir_load_family).

-export([source/2]).
-export([options/1]).

%% Connections from one source address to one port. Linux has about 28,000 ephemeral ports and tries one half of them
%% first. Beyond that, each connect(2) searches through thousands of taken ports.
-define(PER_ADDRESS, 10_000).

%% @doc Returns the option that gen_tcp needs for the family of an address.
-spec options(inet:ip_address()) -> [inet | inet6].
options(Address) when tuple_size(Address) =:= 4 -> [inet];
options(_Address) -> [inet6].

%% @doc Returns options for the connection with this number. All of 127.0.0.0/8 is this machine, so to a loopback
%% address each 10,000 connections have their own source address. To other addresses there is one source address, whose
%% ports limit the number of connections.
-spec source(inet:ip_address(), Number :: pos_integer()) -> [{ip, inet:ip4_address()}].
source({127, _, _, _}, Number) when Number >= ?PER_ADDRESS ->
    Bunch = Number div ?PER_ADDRESS,
    [{ip, {127, 1, Bunch div 250 rem 256, 1 + Bunch rem 250}}];
source(_Address, _Number) ->
    [].
