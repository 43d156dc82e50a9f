%% @doc Files that a reactor sends: opened once, sent as often as one likes, without a copy and without a process.
%%
%% ```
%% {ok, File, #{size := Size}} = weir_file:open("/srv/www/index.html").
%% ...
%% handle_data(_Socket, _Request, State) ->
%%     {send, [Head, {sendfile, File, 0, Size}], State}.
%% '''
%%
%% A file has a descriptor, and no owner: it is closed when no term and no connection has it any more. Opening and reading wait
%% for a disk on a dirty scheduler. So a callback of a reactor must not call these functions; have a process do it, and keep
%% what it has opened. See {@link weir_reactor} for how a file is sent.
-module(weir_file).

-export([open/1]).
-export([open/2]).
-export([read/3]).

-export_type([file/0, info/0, reason/0]).

-opaque file() :: reference().
%% An open file. It is what its name stood for when it was opened, whatever has become of the name.

-type info() :: #{size := non_neg_integer(), modified_ns := integer()}.
%% Bytes, and when it was last changed, in nanoseconds since 1970; both when it was opened.

-type reason() :: directory | not_regular | no_native_part | file:posix().
%% `not_regular': a pipe, a device, a socket, or a symbolic link where they are not followed. `enoent', `enotdir': there is no
%% such file; `eacces': it may not be read; `emfile', `enfile': no descriptor is left; `einval': a name with a zero byte.

%% @doc Opens a regular file. Symbolic links stand for what they point to. Fails with `badarg' for what is no name.
-spec open(file:name_all()) -> {ok, file(), info()} | {error, reason()}.
open(Path) ->
    when_available(fun() -> opened(weir_nif:file_open(bytes(Path))) end).

%% @doc Opens a regular file below a directory, by the names on the way to it: `open("/srv/www", [<<"css">>, <<"a.css">>])'.
%% No symbolic link below the directory is followed, also if somebody puts one there meanwhile, and a name that is empty, `.',
%% `..' or contains a slash is `enoent'. A directory in the place of the file is `directory', as are no names.
-spec open(Directory :: file:name_all(), Names :: [file:name_all()]) -> {ok, file(), info()} | {error, reason()}.
open(Directory, Names) ->
    when_available(fun() -> opened(weir_nif:file_open_below(bytes(Directory), [bytes(Name) || Name <- Names])) end).

%% @doc Reads a part of a file, of 16 MiB at most: less than Length only at its end. For connections that are no reactor's.
%% Fails with `badarg' for a length beyond that.
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
