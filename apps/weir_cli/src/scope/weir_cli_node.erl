%% @doc Connects a command to another node. The command's own node is hidden from the cluster and does not listen.
-module(weir_cli_node).

-export([connect/2]).
-export([explain/1]).
-export([options/0]).

%% Attempts to connect to a node that does not answer. An attempt that fails faster than this was refused.
-define(ATTEMPTS, 6).
-define(UNANSWERED_US, 2_000_000).

%% @doc Returns the options of every command that visits a node.
-spec options() -> [weir_cli_options:option()].
options() ->
    [
        #{name => cookie, type => {text, fun(Text) -> {ok, list_to_atom(Text)} end}, value => "C",
            help => "cookie of the node; other users of this machine can see it (cookie of ~/.erlang.cookie)"},
        #{name => 'no-load', type => flag,
            help => "load no modules on the node: slower, and some figures are missing"}
    ].

%% @doc Connects to the node `NAME@HOST'. Returns `usage' if the name has another form, and `failed' if the node cannot
%% be reached.
-spec connect(string(), weir_cli_options:values()) -> {ok, node()} | {failed, iodata()} | {usage, iodata()}.
connect(Name, Values) ->
    case string:split(Name, "@") of
        [[_ | _], [_ | _] = Host] -> connect(list_to_atom(Name), domain(Host), Values);
        _ -> {usage, ["NODE must be NAME@HOST, not ", Name]}
    end.

domain(Host) ->
    case lists:member($., Host) of
        true -> longnames;
        false -> shortnames
    end.

%% This node accepts no connections, so its host does not matter. Only its form must fit the name domain.
own_name(Domain) ->
    Host = case Domain of longnames -> "127.0.0.1"; shortnames -> "localhost" end,
    list_to_atom(lists:concat(["weir_", os:getpid(), "_", erlang:unique_integer([positive]), "@", Host])).

connect(Node, Domain, Values) ->
    %% The command reports an unreachable node in one line, so the kernel's reports are turned off.
    ok = logger:set_primary_config(level, none),
    case net_kernel:start(own_name(Domain), #{name_domain => Domain, hidden => true, dist_listen => false}) of
        {ok, _} ->
            [true = erlang:set_cookie(Node, Cookie) || #{cookie := Cookie} <- [Values]],
            case reach(Node, ?ATTEMPTS) of
                ok -> {ok, Node};
                {error, Why} -> {failed, explain({Why, Node})}
            end;
        {error, Reason} ->
            {failed, io_lib:format("cannot start distribution: ~0tp", [Reason])}
    end.

%% The attempt fails at once if the node does not run or has another cookie. A node that is too busy to answer within
%% `net_setuptime' of the kernel (7 s) is tried again.
reach(Node, Attempts) ->
    case timer:tc(net_kernel, hidden_connect_node, [Node]) of
        {_, true} -> ok;
        {Time, _} when Time < ?UNANSWERED_US -> {error, no_connection};
        _ when Attempts > 1 -> reach(Node, Attempts - 1);
        _ -> {error, timeout}
    end.

%% @doc Returns a one-line message about a failed visit.
-spec explain(weir_scope:reason() | busy) -> iodata().
explain({no_connection, Node}) ->
    io_lib:format("cannot reach ~s: it does not run, or has another cookie (--cookie)", [Node]);
explain({timeout, Node}) ->
    io_lib:format("~s does not answer", [Node]);
explain({not_sampled, Node, Why}) ->
    io_lib:format("~s cannot be sampled: ~ts", [Node, Why]);
explain({disturbed, Node}) ->
    io_lib:format("another visit of ~s has removed the modules of this one: try again", [Node]);
explain({cannot_load, Module, Reason}) ->
    io_lib:format("cannot load ~s on the node (~0tp): try --no-load", [Module, Reason]);
explain(busy) ->
    "another measurement is running on the node: try again";
explain({needs_load, What}) ->
    io_lib:format("~s cannot be measured with --no-load", [What]);
explain({bad_option, Key, Value, Allowed}) ->
    io_lib:format("~s is ~0tp; allowed: ~0tp", [Key, Value, Allowed]).
