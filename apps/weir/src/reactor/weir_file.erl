%% @doc Files for reactors to send: opened once and sent any number of times, without a copy and without a process.
%%
%% ```
%% {ok, File, #{size := Size}} = weir_file:open("/srv/www/index.html").
%% ...
%% handle_data(_Socket, _Request, State) ->
%%     {send, [Head, {sendfile, File, 0, Size}], State}.
%% '''
%%
%% A file is a descriptor without an owner: it is closed when no term and no connection refers to it. Opening and
%% reading wait for the disk, on a dirty scheduler. So do not call these functions in a callback of a reactor: let a
%% process do it, and keep the open file. {@link weir_reactor} describes how to send it.
-module(weir_file).

-export([open/1]).
-export([open/2]).
-export([read/3]).

-export_type([file/0, info/0, reason/0]).

-opaque file() :: reference().
%% An open file: the one that had the name when it was opened, even if the name is gone or has another file now.

-type info() :: #{size := non_neg_integer(), modified_ns := integer()}.
%% The size in bytes, and the time of the last change in nanoseconds since 1970. Both are as of the opening.

-type reason() :: directory | not_regular | no_native_part | file:posix().
%% `not_regular': a pipe, a device, a socket, or a symbolic link that is not followed. `enoent', `enotdir': there is
%% no such file. `eacces': it may not be read. `emfile', `enfile': no descriptor is left. `einval': the name contains
%% a null byte.

%% @doc Opens a regular file. Follows symbolic links. Fails with `badarg' if the path is not a file name.
-spec open(file:name_all()) -> {ok, file(), info()} | {error, reason()}.
open(Path) ->
    when_available(fun() -> opened(weir_nif:file_open(bytes(Path))) end).

%% @doc Opens a regular file below a directory, by the names on the way to it: `open("/srv/www", [<<"css">>,
%% <<"a.css">>])'. Symbolic links below the directory are not followed, not even those created during the call.
%% `enoent' for a name that is empty, `.', `..' or contains a slash. `directory' if it is a directory, or without
%% names.
-spec open(Directory :: file:name_all(), Names :: [file:name_all()]) -> {ok, file(), info()} | {error, reason()}.
open(Directory, Names) ->
    when_available(fun() -> opened(weir_nif:file_open_below(bytes(Directory), [bytes(Name) || Name <- Names])) end).

%% @doc Reads a part of a file, 16 MiB at most; returns less than Length only at its end. For connections that are not
%% a reactor's. Fails with `badarg' for a larger Length.
-spec read(file(), Offset :: non_neg_integer(), Length :: non_neg_integer()) -> {ok, binary()} | {error, file:posix()}.
read(File, Offset, Length) -> weir_nif:file_read(File, Offset, Length).

opened({ok, File, Size, Modified}) -> {ok, File, #{size => Size, modified_ns => Modified}};
opened({error, _} = Error) -> Error.

when_available(Call) ->
    case weir_nif:available() of
        true -> Call();
        false -> {error, no_native_part}
    end.

bytes(Name) when is_binary(Name) ->
    Name;
bytes(Name) ->
    case unicode:characters_to_binary(Name, unicode, file:native_name_encoding()) of
        Bytes when is_binary(Bytes) -> Bytes;
        _ -> error(badarg)
    end.
