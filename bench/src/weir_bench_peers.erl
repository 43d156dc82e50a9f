%% @doc Finds programs and applications that Weir is compared with and that may be missing, and their versions.
-module(weir_bench_peers).

-export([all/0]).
-export([missing/1]).
-export([executable/1]).
-export([nchan_module/0]).
-export([stream_module/0]).
-export([versions/0]).

-export_type([peer/0, program/0, application/0]).

-define(APPLICATIONS, [ranch, cowboy, recon, observer_cli]).

-type program() :: haproxy | nginx | pushpin | envoy | go | tokio.
-type application() :: ranch | cowboy | recon | observer_cli.
-type peer() :: program() | application() | nginx_stream | nchan.

%% @doc Returns all known peers.
-spec all() -> [peer()].
all() -> [haproxy, nginx, nginx_stream, nchan, pushpin, envoy, go, tokio] ++ ?APPLICATIONS.

%% @doc Returns those of the peers that are not installed or do not run on this OTP.
-spec missing([peer()]) -> [peer()].
missing(Peers) ->
    [Peer || Peer <- Peers, not is_installed(Peer)].

is_installed(nginx_stream) ->
    executable(nginx) =/= false andalso stream_module() =/= false;
is_installed(nchan) ->
    executable(nginx) =/= false andalso nchan_module() =/= false;
is_installed(pushpin) ->
    %% Pushpin needs nginx as its origin.
    executable(pushpin) =/= false andalso executable(nginx) =/= false;
is_installed(Peer) ->
    case lists:member(Peer, ?APPLICATIONS) of
        %% These servers run on our own emulator, so our code path counts.
        true -> code:where_is_file(atom_to_list(Peer) ++ ".app") =/= non_existing andalso is_loadable(Peer);
        false -> executable(Peer) =/= false
    end.

%% A newer OTP may refuse code that an older one compiled, and logs that. The result is cached so that it is logged
%% once.
is_loadable(Application) ->
    case persistent_term:get({?MODULE, Application}, unknown) of
        unknown ->
            _ = application:load(Application),
            {ok, Modules} = application:get_key(Application, modules),
            Verdict = lists:all(fun(Module) -> code:ensure_loaded(Module) =:= {module, Module} end, Modules),
            ok = persistent_term:put({?MODULE, Application}, Verdict),
            Verdict;
        Verdict ->
            Verdict
    end.

%% @doc Returns the path of a program, or `false'.
-spec executable(program()) -> file:filename() | false.
executable(Program) when Program =:= haproxy; Program =:= nginx; Program =:= pushpin ->
    %% Debian installs them in /usr/sbin, which is not in a user's PATH.
    os:find_executable(atom_to_list(Program), os:getenv("PATH", "") ++ ":/usr/sbin:/usr/local/sbin");
executable(Built) ->
    File = weir_bench_tree:peer(Built),
    case filelib:is_regular(File) of
        true -> File;
        false -> false
    end.

%% @doc Returns the path of nginx's push module, or `false'.
-spec nchan_module() -> file:filename() | false.
nchan_module() ->
    File = "/usr/lib/nginx/modules/ngx_nchan_module.so",
    case filelib:is_regular(File) of
        true -> File;
        false -> false
    end.

%% @doc Returns the path of nginx's stream module, `built_in', or `false'.
-spec stream_module() -> file:filename() | built_in | false.
stream_module() ->
    File = "/usr/lib/nginx/modules/ngx_stream_module.so",
    case filelib:is_regular(File) of
        true -> File;
        false ->
            Program = weir_bench_program:start([executable(nginx), "-V"], []),
            case weir_bench_program:await_exit(Program, 5000) of
                {ok, Told} ->
                    case re:run(Told, "--with-stream( |$)", [{capture, none}]) of
                        match -> built_in;
                        nomatch -> false
                    end;
                {error, _} ->
                    ok = weir_bench_program:stop(Program),
                    false
            end
    end.

%% @doc Returns the versions of the installed peers, for people.
-spec versions() -> #{peer() => binary()}.
versions() ->
    maps:from_list([{Peer, version(Peer)} || Peer <- all(), Peer =/= nginx_stream, Peer =/= nchan, is_installed(Peer)]).

version(haproxy) -> told(executable(haproxy), "-v", "version ([0-9][0-9.]*)");
version(nginx) -> told(executable(nginx), "-v", "nginx/([0-9.]+)");
version(pushpin) -> told(executable(pushpin), "--version", "([0-9]+[.][0-9.]+)");
version(envoy) -> told(executable(envoy), "--version", "/([0-9]+[.][0-9.]+)/");
version(go) -> told(executable(go), "version", "go([0-9.]+)");
version(tokio) -> locked(<<"tokio">>);
version(Application) -> of_application(Application).

told(Executable, Argument, Pattern) ->
    Program = weir_bench_program:start([Executable, Argument], []),
    case weir_bench_program:await_exit(Program, 5000) of
        {ok, Output} -> matched(Output, Pattern);
        {error, {_, Output}} -> ok = weir_bench_program:stop(Program), matched(Output, Pattern)
    end.

%% Versions of crates are read from Cargo.lock.
locked(Crate) ->
    case file:read_file(weir_bench_tree:lock_of_tokio()) of
        {ok, Lock} -> matched(Lock, <<"name = \"", Crate/binary, "\"\nversion = \"([^\"]+)\"">>);
        {error, _} -> <<"unknown">>
    end.

of_application(Application) ->
    _ = application:load(Application),
    case application:get_key(Application, vsn) of
        {ok, Version} -> list_to_binary(Version);
        undefined -> <<"unknown">>
    end.

matched(Text, Pattern) ->
    case re:run(Text, Pattern, [{capture, all_but_first, binary}]) of
        {match, [Version]} -> Version;
        nomatch -> <<"unknown">>
    end.
