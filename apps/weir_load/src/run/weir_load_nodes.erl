%% @doc Prepares the nodes that offer the load and compares their clocks with ours. Uses OTP's distribution.
-module(weir_load_nodes).

-export([start_local/1]).
-export([join/2]).
-export([ready/1]).
-export([prepare/0]).
-export([offset/1]).

-export_type([readiness/0]).

%% The descriptors that a node may open. Connections need one each.
-type readiness() :: #{descriptors := pos_integer()}.

%% Comparisons of two clocks. The one with the shortest round trip counts; its error is at most half of that.
-define(COMPARISONS, 25).

%% Timeout for a node to load its code and to start Weir.
-define(PATIENCE, 30_000).

%% @doc Starts nodes on this machine. They end with the caller.
-spec start_local(pos_integer()) -> {ok, [node()]} | {error, iodata()}.
start_local(Count) ->
    %% Listen on loopback only: these nodes talk only to each other.
    ok = application:set_env(kernel, inet_dist_use_interface, {127, 0, 0, 1}),
    case distribute("localhost", shortnames) of
        ok -> start_peers(Count, []);
        {error, _} = Error -> Error
    end.

start_peers(0, Nodes) ->
    {ok, Nodes};
start_peers(Count, Nodes) ->
    Quiet = ["+sbwt", "none", "+sbwtdcpu", "none", "+sbwtdio", "none"],
    Local = ["-kernel", "inet_dist_use_interface", "{127,0,0,1}"],
    Options = #{
        name => peer:random_name(weir_load),
        host => "localhost",
        args => Quiet ++ Local ++ ["-setcookie", atom_to_list(erlang:get_cookie()), "-pa" | code:get_path()]
    },
    case peer:start_link(Options) of
        {ok, _Peer, Node} -> start_peers(Count - 1, [Node | Nodes]);
        {error, Reason} -> {error, io_lib:format("cannot start a node: ~0tp", [Reason])}
    end.

%% @doc Connects to nodes. Their names must be all short or all long. `Cookie' is `none' for our own.
-spec join([node()], Cookie :: atom()) -> ok | {error, iodata()}.
join([], _Cookie) ->
    ok;
join(Nodes, Cookie) ->
    Domain =
        case [Node || Node <- Nodes, has_long_name(Node)] of
            [_ | _] -> longnames;
            [] -> shortnames
        end,
    {ok, Hostname} = inet:gethostname(),
    %% A long node name needs the full host name, which the system may not know.
    Host = case Domain of longnames -> full_name(Hostname); shortnames -> Hostname end,
    case distribute(Host, Domain) of
        ok -> connect(Nodes, Cookie, net_kernel:longnames());
        {error, _} = Error -> Error
    end.

connect([], _Cookie, _LongNames) ->
    ok;
connect([Node | Nodes], Cookie, LongNames) ->
    _ = Cookie =:= none orelse erlang:set_cookie(Node, Cookie),
    case has_long_name(Node) =:= LongNames andalso net_kernel:connect_node(Node) of
        true -> connect(Nodes, Cookie, LongNames);
        _ -> {error, ["cannot reach the node ", atom_to_list(Node), ": ", unreachable(Node, LongNames)]}
    end.

unreachable(Node, LongNames) ->
    [Name, Host] = string:split(atom_to_list(Node), "@"),
    case has_long_name(Node) of
        LongNames ->
            case erl_epmd:names(Host) of
                {ok, All} ->
                    [Own, _] = string:split(atom_to_list(node()), "@"),
                    Known = lists:keydelete(Own, 1, All),
                    case {lists:keymember(Name, 1, Known), Known} of
                        {true, _} -> "it refuses the connection: check the cookie (--cookie)";
                        {false, []} -> ["no node runs on ", Host];
                        {false, _} -> ["the nodes on ", Host, " are ", lists:join(", ", [Other || {Other, _} <- Known])]
                    end;
                {error, address} ->
                    ["no port mapper (epmd) answers on ", Host];
                {error, Reason} ->
                    inet:format_error(Reason)
            end;
        true ->
            "its name is long (its host has a dot), and the others are short";
        false ->
            "its name is short (its host has no dot), and the others are long"
    end.

has_long_name(Node) ->
    [_, Host] = string:split(atom_to_list(Node), "@"),
    lists:member($., Host).

full_name(Hostname) ->
    case inet:gethostbyname(Hostname) of
        {ok, {hostent, Name, _, _, _, _}} -> Name;
        {error, _} -> Hostname
    end.

distribute(_Host, _Domain) when node() =/= nonode@nohost ->
    ok;
distribute(Host, Domain) ->
    %% The VM starts epmd only if it is distributed from its start.
    _ = os:cmd("epmd -daemon"),
    Name = list_to_atom("weir_load_" ++ os:getpid() ++ "@" ++ Host),
    case net_kernel:start(Name, #{name_domain => Domain, hidden => true}) of
        {ok, _} -> ok;
        {error, _} -> {error, ["cannot start distribution as ", atom_to_list(Name), ": is epmd running?"]}
    end.

%% @doc Prepares a node to drive connections.
-spec ready(node()) -> {ok, readiness()} | {error, iodata()}.
ready(Node) when Node =:= node() ->
    prepare();
ready(Node) ->
    try
        erpc:call(Node, ?MODULE, prepare, [], ?PATIENCE)
    catch
        error:{exception, undef, _} ->
            {error, ["the node ", atom_to_list(Node), " lacks Weir's load generator in its code path"]};
        Class:Reason ->
            {error, io_lib:format("cannot prepare the node ~s: ~0tp", [Node, {Class, Reason}])}
    end.

%% @doc The part of {@link ready/1} that runs on the node.
-spec prepare() -> {ok, readiness()} | {error, iodata()}.
prepare() ->
    %% Load all code now: no module can be loaded once connections have taken all descriptors.
    _ = application:load(weir_load),
    {ok, Modules} = application:get_key(weir_load, modules),
    ok = code:ensure_modules_loaded(Modules ++ [base64, calendar, io_lib_format, io_lib_pretty, queue, rand, string]),
    {max_fds, Most} = lists:keyfind(max_fds, 1, lists:flatten(erlang:system_info(check_io))),
    case application:ensure_all_started(weir) of
        {error, Reason} ->
            {error, io_lib:format("cannot start weir on ~s: ~0tp", [node(), Reason])};
        {ok, _} ->
            case weir_nif:available() of
                true ->
                    {ok, #{descriptors => Most}};
                false ->
                    {error, io_lib:format("the load generator needs Weir's native library, which ~s lacks", [node()])}
            end
    end.

%% @doc Returns the nanoseconds by which a node's monotonic clock is ahead of ours.
-spec offset(node()) -> integer().
offset(Node) when Node =:= node() ->
    0;
offset(Node) ->
    {_RoundTrip, Offset} = lists:min([compare(Node) || _ <- lists:seq(1, ?COMPARISONS)]),
    Offset.

compare(Node) ->
    Before = erlang:monotonic_time(nanosecond),
    There = erpc:call(Node, erlang, monotonic_time, [nanosecond], ?PATIENCE),
    After = erlang:monotonic_time(nanosecond),
    {After - Before, There - (Before + After) div 2}.
