%% @doc What stands beside a figure: the machine, its kernel, the emulator, the commit; and which cores are whose.
-module(weir_bench_machine).

-export([description/0]).
-export([cores/0]).

-export_type([cores/0]).

%% Prefixes of a command that pin it, empty where pinning cannot be; `note' says why.
-type cores() :: #{server := [string()], driver := [string()], note := none | binary()}.

%% @doc Processor, cores, kernel, OTP, commit and pinning, for people.
-spec description() -> #{atom() => binary() | integer()}.
description() ->
    #{
        processor => processor(),
        cores => erlang:system_info(logical_processors),
        kernel => first_line("/proc/sys/kernel/osrelease"),
        otp => otp_version(),
        erts => list_to_binary(erlang:system_info(version)),
        commit => weir_bench_tree:commit(),
        pinning =>
            case cores() of
                #{note := none, server := Server, driver := Driver} ->
                    iolist_to_binary(["server on core ", lists:last(Server), ", driver on core ", lists:last(Driver)]);
                #{note := Note} ->
                    Note
            end
    }.

%% @doc One core for the server and another for the driver, of those this process may run on.
-spec cores() -> cores().
cores() ->
    case {os:find_executable("taskset"), allowed_cores()} of
        {false, _} ->
            unpinned(<<"not pinned: there is no taskset, so the server and the driver may disturb each other">>);
        {_, [Server, Driver | _]} ->
            #{server => pin(Server), driver => pin(Driver), note => none};
        {_, _} ->
            unpinned(<<"not pinned: there is one core only, so the server and the driver share it">>)
    end.

pin(Core) ->
    ["taskset", "-c", integer_to_list(Core)].

unpinned(Note) ->
    #{server => [], driver => [], note => Note}.

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
