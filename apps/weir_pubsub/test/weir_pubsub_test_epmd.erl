%% Where nodes listen, without an epmd: the port is in the name.
-module(weir_pubsub_test_epmd).

-export([start_link/0]).
-export([register_node/2]).
-export([register_node/3]).
-export([listen_port_please/2]).
-export([port_please/2]).
-export([port_please/3]).
-export([address_please/3]).
-export([names/1]).

start_link() -> ignore.

register_node(_Name, _Port) -> {ok, 1}.
register_node(_Name, _Port, _Family) -> {ok, 1}.

listen_port_please(Name, _Host) -> {ok, port(Name)}.

port_please(Name, _Host) -> {port, port(Name), 6}.
port_please(Name, Host, _Timeout) -> port_please(Name, Host).

address_please(Name, _Host, _Family) -> {ok, {127, 0, 0, 1}, port(Name), 6}.

names(_Host) -> {error, address}.

port(Name) when is_atom(Name) -> port(atom_to_list(Name));
port([$n | Port]) -> list_to_integer(Port).
