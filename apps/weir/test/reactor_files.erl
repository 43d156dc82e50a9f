%% Files on disk for the suites of reactors that send them.
-module(reactor_files).

-export([part/3]).
-export([open_files/1]).
-export([file_of/2]).
-export([write/3]).

-include_lib("common_test/include/ct.hrl").

part(Bytes, Offset, Length) -> binary:part(Bytes, Offset, Length).

open_files(Path) ->
    {ok, Descriptors} = file:list_dir("/proc/self/fd"),
    length([D || D <- Descriptors, file:read_link("/proc/self/fd/" ++ D) =:= {ok, Path}]).

file_of(Config, Size) ->
    Bytes = rand:bytes(Size),
    {ok, File, #{size := Size}} = weir_file:open(write(Config, "file", Bytes)),
    {File, Bytes}.

write(Config, Name, Bytes) ->
    Case = integer_to_list(erlang:unique_integer([positive])),
    Path = filename:join([?config(priv_dir, Config), Case, Name]),
    ok = filelib:ensure_dir(Path),
    ok = file:write_file(Path, Bytes),
    Path.
