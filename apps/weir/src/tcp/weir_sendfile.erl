%% @private
%% @doc Sends a part of a file on a socket. The caller drives the transfer, by one native call after another.
-module(weir_sendfile).

-include_lib("kernel/include/file.hrl").

-export([send/4]).
-export([sent_part/2]).

-import(weir_operation, [await/4]).

%% The largest file size and offset.
-define(MAX_FILE, (1 bsl 63 - 1)).

%% @doc See {@link weir_tcp:sendfile/4}.
-spec send(weir_nif:handle(), file:fd(), integer(), integer()) ->
    {ok, non_neg_integer()} | {error, closed | badarg | not_owner | enotsup | inet:posix()}.
send(Handle, #file_descriptor{module = raw_file_io_list, data = File}, Offset, Bytes) ->
    send(Handle, File, Offset, Bytes);
send(Handle, File = #file_descriptor{module = prim_file}, Offset, Bytes) ->
    case prim_file:get_handle(File) of
        Descriptor when is_binary(Descriptor) -> send_descriptor(Handle, Descriptor, Offset, Bytes);
        {error, _} -> {error, badarg}
    end;
send(_Handle, _File, _Offset, _Bytes) ->
    {error, enotsup}.

send_descriptor(Handle, Descriptor, Offset, 0) ->
    send_descriptor(Handle, Descriptor, Offset, ?MAX_FILE);
send_descriptor(Handle, Descriptor, Offset, Bytes) when
    Offset >= 0, Offset =< ?MAX_FILE, Bytes > 0, Bytes =< ?MAX_FILE
->
    case weir_nif:sendfile_begin(Handle, Descriptor, Offset, Bytes) of
        ok -> send_parts(Handle, weir_nif:sendfile_continue(Handle));
        Error -> Error
    end;
send_descriptor(Handle, _Descriptor, _Offset, _Bytes) ->
    %% `not_owner' takes precedence over `einval'.
    Self = self(),
    case weir_nif:owner(Handle) of
        {ok, Owner} when Owner =/= Self -> {error, not_owner};
        _ -> {error, einval}
    end.

send_parts(Handle, more) ->
    send_parts(Handle, weir_nif:sendfile_continue(Handle));
send_parts(Handle, disk) ->
    send_parts(Handle, weir_nif:sendfile_from_disk(Handle));
send_parts(Handle, {wait, Operation}) ->
    await(Handle, Operation, infinity, {?MODULE, sent_part, [Handle]});
send_parts(_Handle, Result) ->
    Result.

%% @private
%% @doc Continues after a wait of a transfer.
-spec sent_part(weir_nif:handle(), retry | Result) -> Result when
    Result :: {ok, non_neg_integer()} | {error, closed | inet:posix()}.
sent_part(Handle, retry) -> send_parts(Handle, more);
sent_part(_Handle, Result) -> Result.
