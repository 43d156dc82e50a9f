%% @private
%% @doc A file as a response: what {@link weir_http_direct} promises of `{file, Path}'.
%%
%% It runs in the process of the request, since a disk may make it wait. The bytes are read in pieces, each when the client
%% has taken the one before.
-module(weir_http_file).

-export([serve/3]).
-export([regular/2]).
-export([bytes/1]).

-export_type([links/0]).

-include_lib("kernel/include/file.hrl").

%% Whether a symbolic link stands for what it points to.
-type links() :: follow | refuse.

%% Bytes of a file that are in memory for a client, and of a file that goes out with its head.
-define(PIECE, 65536).

-type body() :: [iodata() | weir_http_ranges:range()].

%% @doc Answers a request with a file: the result that a process handler returns.
-spec serve(weir_http_request:request(), file:name_all(), {weir_http_direct:fields(), links()}) -> weir_http_process:result().
serve(Request, Path, {Fields, Links}) ->
    Accepted = weir_http_coding:accepted(weir_http_request:field(<<"accept-encoding">>, Request), [<<"br">>, <<"gzip">>]),
    case open(bytes(Path), Accepted, Links) of
        {ok, Device, Info, Coding} ->
            try
                opened(Request, Device, Info, Coding, [{<<"content-type">>, media_type(Path)} || not has_type(Fields)] ++ Fields)
            after
                file:close(Device)
            end;
        {error, Reason} ->
            {reply, status(Reason), [], <<>>}
    end.

%% @doc A name of a file as the system has it.
-spec bytes(file:name_all()) -> binary().
bytes(Path) when is_binary(Path) -> Path;
bytes(Path) -> unicode:characters_to_binary(Path, unicode, file:native_name_encoding()).

status(eacces) -> 403;
status(emfile) -> 503;
status(enfile) -> 503;
status(Reason) when
    Reason =:= enoent; Reason =:= enotdir; Reason =:= eloop; Reason =:= enametoolong; Reason =:= badarg; Reason =:= not_regular
->
    404;
status(Reason) ->
    error({file, Reason}).

%% The file itself must be there, also where one that is encoded is sent in its place.
open(Path, Accepted, Links) ->
    case regular(Path, Links) of
        ok -> open_best(Path, Accepted, Links);
        {error, _} = Error -> Error
    end.

open_best(Path, [Coding | Accepted], Links) ->
    Encoded = <<Path/binary, (ending(Coding))/binary>>,
    case regular(Encoded, Links) of
        ok -> opened(file:open(Encoded, [read, raw, binary]), Coding);
        {error, _} -> open_best(Path, Accepted, Links)
    end;
open_best(Path, [], _Links) ->
    opened(file:open(Path, [read, raw, binary]), identity).

%% What is open is what is described, whatever has become of its name.
opened({ok, Device}, Coding) ->
    case file:read_file_info(Device, [{time, posix}]) of
        {ok, Info} ->
            {ok, Device, Info, Coding};
        {error, _} = Error ->
            _ = file:close(Device),
            Error
    end;
opened({error, _} = Error, _Coding) ->
    Error.

%% @doc Whether a path is that of a file. To open a pipe or a device could wait, or do something.
-spec regular(binary(), links()) -> ok | {error, directory | not_regular | file:posix() | badarg}.
regular(Path, Links) ->
    Found =
        case Links of
            follow -> file:read_file_info(Path, [raw, {time, posix}]);
            refuse -> file:read_link_info(Path, [raw, {time, posix}])
        end,
    case Found of
        {ok, #file_info{type = regular}} -> ok;
        {ok, #file_info{type = directory}} -> {error, directory};
        {ok, _} -> {error, not_regular};
        {error, _} = Error -> Error
    end.

%%% The response.

opened(Request, Device, #file_info{size = Size, mtime = Modified}, Coding, Given) ->
    Tag = tag(Size, Modified, Coding),
    Validators = [
        {<<"etag">>, Tag},
        %% One that lies in the future may not be said.
        {<<"last-modified">>, weir_http_nif:format_date(max(0, min(Modified, os:system_time(second))))},
        {<<"vary">>, <<"accept-encoding">>}
    ],
    case weir_http_conditions:check(Request, Tag, Modified) of
        not_modified ->
            {reply, 304, [Field || {Name, _} = Field <- Given, not is_about_content(Name)] ++ Validators, <<>>};
        failed ->
            {reply, 412, [], <<>>};
        proceed ->
            Fields = [{<<"accept-ranges">>, <<"bytes">>} | coding(Coding)] ++ Validators ++ Given,
            case parts(Request, Tag, Modified, Size) of
                whole -> send(Request, 200, Fields, [{0, Size - 1} || Size > 0], Device);
                {parts, [Part]} -> send(Request, 206, [content_range(Part, Size) | Fields], [Part], Device);
                {parts, Parts} -> send_parts(Request, Parts, Size, Fields, Device);
                unsatisfiable -> {reply, 416, [{<<"content-range">>, [<<"bytes */">>, integer_to_binary(Size)]}], <<>>}
            end
    end.

%% To the second, as times of files are said here: a file that changes twice in a second and keeps its size has the same.
tag(Size, Modified, Coding) ->
    iolist_to_binary([$", integer_to_binary(Modified, 16), $-, integer_to_binary(Size, 16), suffix(Coding), $"]).

ending(<<"br">>) -> <<".br">>;
ending(<<"gzip">>) -> <<".gz">>.

suffix(identity) -> <<>>;
suffix(Coding) -> [$-, Coding].

coding(identity) -> [];
coding(Coding) -> [{<<"content-encoding">>, Coding}].

is_about_content(Name) -> weir_http_value:lower(Name) =:= <<"content-type">>.

has_type(Fields) -> lists:any(fun({Name, _}) -> is_about_content(Name) end, Fields).

media_type(Path) ->
    Known =
        case filename:extension(bytes(Path)) of
            <<".", Extension/binary>> -> weir_http_nif:media_type(Extension);
            _ -> undefined
        end,
    case Known of
        undefined -> <<"application/octet-stream">>;
        <<"text/", _/binary>> -> <<Known/binary, "; charset=utf-8">>;
        _ -> Known
    end.

%% Only GET has ranges (RFC 9110, 14.2).
parts(Request, Tag, Modified, Size) ->
    case weir_http_request:method(Request) =:= <<"GET">> andalso weir_http_conditions:may_be_in_parts(Request, Tag, Modified) of
        true -> weir_http_ranges:parse(weir_http_request:field(<<"range">>, Request), Size);
        false -> whole
    end.

content_range(Part, Size) -> {<<"content-range">>, range(Part, Size)}.

range({First, Last}, Size) ->
    [<<"bytes ">>, integer_to_binary(First), $-, integer_to_binary(Last), $/, integer_to_binary(Size)].

send_parts(Request, Parts, Size, Fields, Device) ->
    Boundary = binary:encode_hex(rand:bytes(16)),
    {_, Type} = lists:keyfind(<<"content-type">>, 1, [{weir_http_value:lower(Name), Value} || {Name, Value} <- Fields]),
    Body = lists:append([[part_head(Boundary, Type, Part, Size), Part] || Part <- Parts]) ++ [[<<"\r\n--">>, Boundary, <<"--\r\n">>]],
    Others = [Field || {Name, _} = Field <- Fields, not is_about_content(Name)],
    send(Request, 206, [{<<"content-type">>, [<<"multipart/byteranges; boundary=">>, Boundary]} | Others], Body, Device).

part_head(Boundary, Type, Part, Size) ->
    [<<"\r\n--">>, Boundary, <<"\r\ncontent-type: ">>, Type, <<"\r\ncontent-range: ">>, range(Part, Size), <<"\r\n\r\n">>].

-spec send(weir_http_request:request(), 200 | 206, weir_http_direct:fields(), body(), file:io_device()) ->
    weir_http_process:result().
send(Request, Status, Fields, Body, Device) ->
    Length = lists:sum([size_of(Piece) || Piece <- Body]),
    case weir_http_request:is_head(Request) of
        false when Length =< ?PIECE -> {reply, Status, Fields, [in_memory(Piece, Device) || Piece <- Body]};
        _ -> stream(weir_http_process:stream(Request, Status, Fields, Length), Request, Body, Device)
    end.

size_of({First, Last}) -> Last - First + 1;
size_of(Text) -> iolist_size(Text).

in_memory({First, Last}, Device) -> read(Device, First, Last - First + 1);
in_memory(Text, _Device) -> Text.

stream(ok, Request, Body, Device) ->
    case weir_http_request:is_head(Request) of
        true -> ok;
        false -> pieces(Body, Device)
    end,
    streamed;
stream({error, closed}, _Request, _Body, _Device) ->
    streamed.

pieces([{First, Last} | Body], Device) when First =< Last ->
    Bytes = read(Device, First, min(?PIECE, Last - First + 1)),
    sent(weir_http_process:send(Bytes), [{First + byte_size(Bytes), Last} | Body], Device);
pieces([{_, _} | Body], Device) ->
    pieces(Body, Device);
pieces([Text | Body], Device) ->
    sent(weir_http_process:send(Text), Body, Device);
pieces([], _Device) ->
    ok.

sent(ok, Body, Device) -> pieces(Body, Device);
sent({error, closed}, _Body, _Device) -> ok.

%% A file that has become shorter fails here: its length was said already.
read(Device, Offset, Length) ->
    {ok, <<Bytes:Length/binary>>} = file:pread(Device, Offset, Length),
    Bytes.
