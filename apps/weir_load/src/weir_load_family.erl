%% @doc What follows from the family of the server's address: the module of Weir that opens sockets to it, and the
%% addresses that connections come from.
-module(weir_load_family).

-export([module/1]).
-export([source/2]).
-export([options/1]).

%% @doc The TCP module of Weir for an address.
-spec module(inet:ip_address()) -> weir_tcp | weir_tcp6.
module(Address) when tuple_size(Address) =:= 4 -> weir_tcp;
module(_Address) -> weir_tcp6.

%% @doc The option of gen_tcp that OTP's own module needs for an address.
-spec options(inet:ip_address()) -> [inet | inet6].
options(Address) when tuple_size(Address) =:= 4 -> [inet];
options(_Address) -> [inet6].

%% @doc Options for connections of the n-th bunch, from 0. An address has some 28,000 ports to connect from; all of
%% 127.0.0.0/8 is this machine, so that to it every bunch comes from an address of its own.
-spec source(inet:ip_address(), non_neg_integer()) -> [{ip, inet:ip4_address()}].
source(_Address, 0) -> [];
source({127, _, _, _}, Bunch) -> [{ip, {127, 1, Bunch div 250, 1 + Bunch rem 250}}];
source(_Address, _Bunch) -> [].
