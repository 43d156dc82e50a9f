%% @doc Lists OTP's suites, and builds them from OTP's source outside of this tree.
-module(weir_conformance_suites).

-export([all/0]).
-export([build/3]).

%% Modules that the suites call. Not every release of OTP has all of them.
-define(COMPANIONS, [
    kernel_test_lib,
    kernel_test_global_sys_monitor,
    kernel_test_sys_monitor,
    socket_test_lib
]).

%% @doc Returns the suites in their order.
-spec all() -> [module()].
all() ->
    [
        gen_tcp_api_SUITE,
        gen_tcp_echo_SUITE,
        gen_tcp_misc_SUITE,
        inet_SUITE,
        inet_sockopt_SUITE,
        sendfile_SUITE
    ].

%% @doc Builds all suites of the unpacked source in a directory, with additional compiler options. Replaces earlier
%% builds.
-spec build(Source :: file:filename(), Directory :: file:filename(), [compile:option()]) -> ok.
build(Source, Directory, Options) ->
    ok = remove(Directory),
    ok = filelib:ensure_dir(filename:join(Directory, "x")),
    Tests = filename:join([Source, "lib", "kernel", "test"]),
    Hook = filename:join([Source, "lib", "common_test", "test_server", "ts_install_cth.erl"]),
    Companions = lists:filter(fun filelib:is_regular/1, [module_file(Tests, Module) || Module <- ?COMPANIONS]),
    Suites = [module_file(Tests, Suite) || Suite <- all()],
    %% Headers of the kernel's sources are included as "kernel/src/inet_dns.hrl", and some installations lack them.
    Paths = [{outdir, Directory}, {i, Tests}, {i, filename:join(Source, "lib")}],
    in_parallel([fun() -> compile(File, Paths ++ Options) end || File <- [Hook | Companions ++ Suites]]),
    lists:foreach(fun(Suite) -> copy_data(Tests, Directory, Suite) end, all()).

module_file(Directory, Module) -> filename:join(Directory, atom_to_list(Module) ++ ".erl").

compile(File, Options) ->
    case compile:file(File, [debug_info, return_errors | Options]) of
        {ok, _} -> ok;
        {error, Errors, _} -> error({cannot_compile, File, Errors})
    end.

in_parallel(Calls) ->
    Monitors = [spawn_monitor(Call) || Call <- Calls],
    lists:foreach(
        fun({Pid, Monitor}) ->
            receive
                {'DOWN', Monitor, process, Pid, normal} -> ok;
                {'DOWN', Monitor, process, Pid, Reason} -> exit(Reason)
            end
        end,
        Monitors
    ).

%% Builds the C programs and libraries that some cases need, without the makefiles of the test server.
copy_data(Tests, Directory, Suite) ->
    Name = atom_to_list(Suite) ++ "_data",
    From = filename:join(Tests, Name),
    To = filename:join(Directory, Name),
    case filelib:is_dir(From) of
        true ->
            ok = copy(From, To),
            lists:foreach(fun(File) -> build_c(To, File) end, filelib:wildcard("*.c", To));
        false ->
            ok
    end.

build_c(Directory, File) ->
    Source = filename:join(Directory, File),
    {ok, Text} = file:read_file(Source),
    Root = filename:rootname(Source),
    case binary:match(Text, <<"ERL_NIF_INIT">>) of
        nomatch ->
            cc(["-o", Root, Source]);
        _ ->
            Headers = filename:join([code:root_dir(), "usr", "include"]),
            cc(["-shared", "-fPIC", "-I", Headers, "-o", Root ++ ".so", Source])
    end.

cc(Arguments) ->
    run("cc", ["-w" | Arguments]).

copy(From, To) ->
    run("cp", ["-r", From, To]).

remove(Directory) ->
    run("rm", ["-rf", Directory]).

run(Program, Arguments) ->
    {ok, Output, Status} = weir_conformance_program:run(Program, Arguments, #{}),
    case Status of
        0 -> ok;
        _ -> error({failed, Program, Arguments, Output})
    end.
