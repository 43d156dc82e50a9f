%% Shared by the suites of new code in a running node: each case runs on its own node.
-module(weir_upgrade_test).

-export([init_case/2]).
-export([on_own_node/3]).
-export([load/1]).
-export([copy/2]).
-export([copy/3]).
-export([use_copy/1]).
-export([libraries/0]).
-export([echo_all/2]).

init_case(Case, Config) ->
    Directory = filename:join(proplists:get_value(priv_dir, Config), atom_to_list(Case)),
    ok = filelib:ensure_dir(filename:join(Directory, "file")),
    [{directory, Directory} | Config].

on_own_node(Suite, Case, Config) ->
    weir_test_node:on_bare_node(Suite, Case, [lists:keyfind(directory, 1, Config)], "", []).

load(Module) ->
    _ = code:purge(Module),
    code:load_file(Module).

copy(Config, Name) -> copy(Config, Name, "weir").

copy(Config, Name, Application) ->
    From = filename:dirname(filename:dirname(code:which(weir_nif))),
    To = filename:join([proplists:get_value(directory, Config), Name, Application]),
    [
        begin
            Target = filename:join([To, Folder, filename:basename(File)]),
            ok = filelib:ensure_dir(Target),
            {ok, _} = file:copy(File, Target)
        end
     || Folder <- ["ebin", "priv"],
        File <- filelib:wildcard(filename:join([From, Folder, "*"])),
        filelib:is_regular(File)
    ],
    To.

use_copy(Copy) ->
    true = code:replace_path(weir, filename:join(Copy, "ebin")),
    ok.

%% The number of files of the library that the process has mapped.
libraries() ->
    {ok, Maps} = file:open("/proc/self/maps", [read, raw, binary, {read_ahead, 1 bsl 20}]),
    Files = lines(Maps),
    ok = file:close(Maps),
    Libraries = [
        Inode
     || Line <- Files,
        binary:match(Line, <<"weir_nif.so">>) =/= nomatch,
        [_, _, _, _, Inode | _] <- [string:lexemes(Line, " ")]
    ],
    length(lists:usort(Libraries)).

lines(File) ->
    case file:read_line(File) of
        {ok, Line} -> [Line | lines(File)];
        eof -> []
    end.

echo_all(Socket, Args) ->
    case gen_tcp:recv(Socket, 0) of
        {ok, Data} ->
            ok = gen_tcp:send(Socket, Data),
            echo_all(Socket, Args);
        {error, closed} ->
            ok
    end.
