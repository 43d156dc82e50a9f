%% @private
%% @doc Reads files of /proc and /sys once a second. On the node itself they stay open, which makes a read ten times
%% cheaper. From another node each read opens the file.
-module(weir_scope_files).

-export([open/2]).
-export([read/2]).
-export([text/2]).
-export([names/2]).
-export([table/2]).
-export([number/1]).
-export([cgroup/2]).

-export_type([source/0]).

-type source() :: {open, file:fd()} | {path, file:filename()} | none.

%% The bytes of a read. All files are shorter, except /proc/net/netstat, whose rest is not needed.
-define(LONGEST, 16_384).

-spec open(weir_scope_facts:ask(), file:filename() | unknown) -> source().
open(_Ask, unknown) ->
    none;
open(Ask, Path) ->
    case Ask =:= fun erlang:apply/3 andalso file:open(Path, [raw, read, binary]) of
        false -> {path, Path};
        {ok, File} -> {open, File};
        {error, _} -> none
    end.

%% @doc Returns the text of an opened file, or `unknown' if it cannot be read.
-spec read(weir_scope_facts:ask(), source()) -> binary() | unknown.
read(_Ask, {open, File}) ->
    case file:pread(File, 0, ?LONGEST) of
        {ok, Text} -> Text;
        _ -> unknown
    end;
read(Ask, {path, Path}) ->
    text(Ask, Path);
read(_Ask, none) ->
    unknown.

%% @doc Reads a file once. Returns its text, or `unknown' if it cannot be read. Does not use the node's file server,
%% which may be waiting for a slow disk.
-spec text(weir_scope_facts:ask(), file:filename() | unknown) -> binary() | unknown.
text(_Ask, unknown) ->
    unknown;
text(Ask, Path) ->
    case Ask(prim_file, read_file, [Path]) of
        {ok, Text} -> Text;
        {error, _} -> unknown
    end.

-spec names(weir_scope_facts:ask(), file:filename()) -> [file:filename()] | unknown.
names(Ask, Directory) ->
    case Ask(prim_file, list_dir, [Directory]) of
        {ok, Names} -> Names;
        {error, _} -> unknown
    end.

%% @doc Returns a map of the lines `NAME SEPARATOR VALUE' of a text.
-spec table(binary() | unknown, string()) -> #{binary() => binary()}.
table(unknown, _Separator) ->
    #{};
table(Text, Separator) ->
    Lines = [string:split(Line, Separator) || Line <- binary:split(Text, <<"\n">>, [global])],
    maps:from_list([{Name, string:trim(Value)} || [Name, Value] <- Lines]).

%% @doc Returns the number at the beginning of a text, or `unknown'.
-spec number(binary() | unknown) -> integer() | unknown.
number(unknown) ->
    unknown;
number(Text) ->
    case string:to_integer(string:trim(Text)) of
        {Number, _} when is_integer(Number) -> Number;
        _ -> unknown
    end.

%% @doc Returns the path of a file of the VM's control group (version 2), or `unknown'. In a container its own group is
%% the root.
-spec cgroup(weir_scope_facts:ask(), string()) -> file:filename() | unknown.
cgroup(Ask, Name) ->
    case text(Ask, "/proc/self/cgroup") of
        unknown ->
            unknown;
        Text ->
            case re:run(Text, "^0::(/.*)$", [multiline, {capture, [1], list}]) of
                {match, [Path]} -> filename:join(["/sys/fs/cgroup" ++ Path, Name]);
                nomatch -> unknown
            end
    end.
