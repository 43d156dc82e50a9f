%% @doc Finds the native library of an application of Weir.
%%
%% `priv/NAME.so', built from source, takes precedence. A package from Hex has one library for each supported
%% processor and C library, `priv/native/NAME-ARCHITECTURE-linux-LIBC.so'. It is chosen by the system that the virtual
%% machine was built for, because a library must use the same C library as its program.
-module(weir_library).

-export([file/2]).
-export([file_name/2]).

-export_type([reason/0]).

-type reason() :: {no_library | in_archive, Text :: string()}.
%% `no_library': there is none for this system. `in_archive': the application is inside an archive, such as an
%% escript, and the operating system loads libraries only from files.

%% @doc Returns the file to load, without `.so', for {@link erlang:load_nif/2}. `Module' is a module of the
%% application: its path is used if no directory has the application's name.
-spec file(Application :: atom(), Module :: module()) -> {ok, file:filename()} | {error, reason()}.
file(Application, Module) ->
    Priv = priv_dir(Application, Module),
    case archive(Priv) of
        {ok, Archive} -> {error, {in_archive, in_archive(Module, Archive)}};
        none -> in_directory(Priv, Module)
    end.

in_directory(Priv, Module) ->
    Built = filename:join(Priv, Module),
    System = erlang:system_info(system_architecture),
    case filelib:is_regular(Built ++ ".so") of
        true -> {ok, Built};
        false -> in_package(Priv, file_name(Module, System), System)
    end.

in_package(Priv, {ok, Name}, System) ->
    File = filename:join([Priv, "native", Name]),
    case filelib:is_regular(File) of
        true -> {ok, filename:rootname(File, ".so")};
        false -> {error, {no_library, none_for(Priv, System)}}
    end;
in_package(Priv, error, System) ->
    {error, {no_library, none_for(Priv, System)}}.

%% @doc Returns the name of the library in a package, for a system in the form of
%% `erlang:system_info(system_architecture)': `x86_64-pc-linux-gnu', `aarch64-alpine-linux-musl'. `error' for other
%% systems than Linux and other C libraries.
-spec file_name(Library :: atom(), System :: string()) -> {ok, file:filename()} | error.
file_name(Library, System) ->
    Parts = string:lexemes(System, "-"),
    case {Parts, lists:member("linux", Parts), lists:last(Parts)} of
        {[Processor | _], true, Libc} when Libc =:= "gnu"; Libc =:= "musl" ->
            {ok, lists:concat([Library, "-", Processor, "-linux-", Libc, ".so"])};
        _ ->
            error
    end.

priv_dir(Application, Module) ->
    case code:priv_dir(Application) of
        {error, bad_name} -> filename:join(filename:dirname(filename:dirname(code:which(Module))), "priv");
        Directory -> Directory
    end.

%% A path through a regular file is inside an archive: only the code server can follow it.
archive(Path) ->
    case {filelib:is_regular(Path), filename:dirname(Path)} of
        {true, _} -> {ok, Path};
        {false, Path} -> none;
        {false, Parent} -> archive(Parent)
    end.

in_archive(Library, Archive) ->
    text(
        "~ts.so cannot be loaded from inside the archive ~ts: run the program as a release, or with the application "
        "in a directory on the code path",
        [Library, Archive]
    ).

none_for(Priv, System) ->
    text("no native library for ~ts in ~ts: build one there with WEIR_BUILD=1 and a Rust toolchain", [System, Priv]).

text(Format, Arguments) ->
    lists:flatten(io_lib:format(Format, Arguments)).
