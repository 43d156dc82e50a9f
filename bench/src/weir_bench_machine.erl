%% @doc Describes the machine, its kernel, the emulator and the commit of a run, and assigns cores.
-module(weir_bench_machine).

-export([description/0]).
-export([cores/0]).
-export([allowed/0]).
-export([placement/2]).
-export([shares/2]).
-export([free_port/0]).

-export_type([cores/0, pin/0]).

%% The cores of the server and the driver, or none if pinning is impossible; `note' gives the reason.
-type cores() :: #{pinned := [Core :: non_neg_integer()], note := none | binary()}.

%% A command prefix that pins the command; empty without pinning.
-type pin() :: [string()].

%% Ports for programs that need a fixed one: below the range of ephemeral ports.
-define(FIRST_PORT, 10_000).
-define(PORTS, 20_000).
%% Number of ports that this process holds at most. A measurement needs three at a time.
-define(HELD_PORTS, 16).

%% Generous number of descriptors that a server has open besides its connections.
-define(OTHER_DESCRIPTORS, 256).

%% @doc Returns processor, cores, kernel, OTP, commit, versions of the peers and pinning, as text for people.
-spec description() -> #{atom() => binary() | integer() | #{atom() => binary()}}.
description() ->
    #{
        processor => processor(),
        cores => erlang:system_info(logical_processors),
        kernel => first_line("/proc/sys/kernel/osrelease"),
        otp => otp_version(),
        erts => list_to_binary(erlang:system_info(version)),
        commit => weir_bench_tree:commit(),
        peers => weir_bench_peers:versions(),
        pinning =>
            case cores() of
                #{note := none, pinned := [Server, Driver]} ->
                    iolist_to_binary(io_lib:format("server on core ~b, driver on core ~b", [Server, Driver]));
                #{note := Note} ->
                    Note
            end
    }.

%% @doc Chooses one core for the server and another for the driver from those that this process may use.
-spec cores() -> cores().
cores() ->
    case {os:find_executable("taskset"), allowed_cores()} of
        {false, _} ->
            unpinned(<<"not pinned: taskset is not installed, so the server and the driver may disturb each other">>);
        {_, [Server, Driver | _]} ->
            #{pinned => [Server, Driver], note => none};
        {_, _} ->
            unpinned(<<"not pinned: the server and the driver share the only core">>)
    end.

unpinned(Note) ->
    #{pinned => [], note => Note}.

%% @doc Returns the number of cores that programs can be pinned to.
-spec allowed() -> non_neg_integer().
allowed() ->
    case cores() of
        #{note := none} -> length(allowed_cores());
        _ -> 0
    end.

%% @doc Returns where a server and its drivers run:
%% <dl>
%% <dt>`apart'</dt><dd>each on a core of its own</dd>
%% <dt>`{apart, Cores, Drivers}'</dt><dd>the server on this many cores, and each driver on one of the others; as
%% `anywhere' if there are too few</dd>
%% <dt>`{together, Count}'</dt><dd>the server on one or both of two cores and a driver on each of the two</dd>
%% <dt>`anywhere'</dt><dd>the server and one driver where the kernel puts them</dd>
%% </dl>
-spec placement(Placement, cores()) -> {Server :: pin(), Drivers :: [pin(), ...]} when
    Placement ::
        apart | {apart, Cores :: pos_integer(), Drivers :: pos_integer()} | {together, Count :: 1 | 2} | anywhere.
placement(anywhere, _Cores) ->
    {[], [[]]};
placement({apart, Count, Drivers}, #{note := none}) ->
    Allowed = allowed_cores(),
    case length(Allowed) - Drivers of
        Others when Others >= Count ->
            {pin(lists:sublist(Allowed, Count)), [pin([Core]) || Core <- lists:nthtail(Others, Allowed)]};
        _ ->
            {[], [[]]}
    end;
placement({apart, _Count, _Drivers}, _Unpinned) ->
    {[], [[]]};
placement(apart, #{pinned := []}) -> {[], [[]]};
placement(apart, #{pinned := [Server, Driver]}) -> {pin([Server]), [pin([Driver])]};
placement({together, _Count}, #{pinned := []}) -> {[], [[], []]};
placement({together, Count}, #{pinned := Cores}) -> {pin(lists:sublist(Cores, Count)), [pin([Core]) || Core <- Cores]}.

pin(Cores) ->
    ["taskset", "-c", lists:flatten(lists:join(",", [integer_to_list(Core) || Core <- Cores]))].

%% @doc Divides connections among servers. Each needs a descriptor, and programs that we start inherit our limit:
%% without `Spread' one server gets as many connections as the limit allows; with it there are as many servers as
%% needed.
-spec shares(Connections :: non_neg_integer(), Spread :: boolean()) -> [non_neg_integer(), ...].
shares(Connections, Spread) ->
    case limit() of
        Limit when Connections =< Limit -> [Connections];
        Limit when not Spread -> [Limit];
        Limit ->
            Servers = (Connections + Limit - 1) div Limit,
            [(Connections + Number) div Servers || Number <- lists:seq(0, Servers - 1)]
    end.

limit() ->
    {ok, Limits} = file:read_file("/proc/self/limits"),
    case re:run(Limits, "^Max open files\\s+([0-9]+)", [multiline, {capture, all_but_first, binary}]) of
        {match, [Limit]} -> max(1, binary_to_integer(Limit) - ?OTHER_DESCRIPTORS);
        nomatch -> infinity
    end.

%% proc(5): "Cpus_allowed_list: 0-3,8".
allowed_cores() ->
    {ok, Status} = file:read_file("/proc/self/status"),
    case re:run(Status, "^Cpus_allowed_list:\\s*(\\S+)", [multiline, {capture, all_but_first, list}]) of
        {match, [List]} -> lists:append([range(Part) || Part <- string:lexemes(List, ",")]);
        nomatch -> []
    end.

range(Part) ->
    case [list_to_integer(Bound) || Bound <- string:lexemes(Part, "-")] of
        [First, Last] -> lists:seq(First, Last);
        [Only] -> [Only]
    end.

%% @doc Returns a free TCP port for a program that needs a fixed one. It is not an ephemeral port. The caller holds it
%% by binding the UDP port of the same number, until it ends or has asked for 16 others: until then this function
%% returns it to no process of the machine.
-spec free_port() -> inet:port_number().
free_port() ->
    Port = ?FIRST_PORT + rand:uniform(?PORTS) - 1,
    case gen_udp:open(Port, [{ip, {127, 0, 0, 1}}]) of
        {ok, Claim} ->
            case gen_tcp:listen(Port, [{ip, {127, 0, 0, 1}}]) of
                {ok, Socket} ->
                    ok = gen_tcp:close(Socket),
                    ok = hold(Claim),
                    Port;
                {error, _} ->
                    ok = gen_udp:close(Claim),
                    free_port()
            end;
        {error, eaddrinuse} ->
            free_port()
    end.

hold(Claim) ->
    Claims = [Claim | case get(?MODULE) of undefined -> []; Held -> Held end],
    _ = put(?MODULE, lists:sublist(Claims, ?HELD_PORTS)),
    lists:foreach(fun gen_udp:close/1, lists:nthtail(min(length(Claims), ?HELD_PORTS), Claims)).

processor() ->
    {ok, Info} = file:read_file("/proc/cpuinfo"),
    case re:run(Info, "^model name\\s*:\\s*(.*)$", [multiline, {capture, all_but_first, binary}]) of
        {match, [Name]} -> string:trim(Name);
        nomatch -> list_to_binary(erlang:system_info(system_architecture))
    end.

otp_version() ->
    Release = erlang:system_info(otp_release),
    case first_line(filename:join([code:root_dir(), "releases", Release, "OTP_VERSION"])) of
        <<>> -> list_to_binary(Release);
        Version -> Version
    end.

first_line(File) ->
    case file:read_file(File) of
        {ok, Text} -> hd(binary:split(Text, <<"\n">>));
        {error, _} -> <<>>
    end.
