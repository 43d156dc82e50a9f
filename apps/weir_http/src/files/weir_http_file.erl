%% @private
%% @doc A file as a response, as {@link weir_http_direct} describes for `{file, Path}'.
%%
%% A reactor answers with files that are already open ({@link find/3}). The process of the request opens others
%% ({@link serve/3}), since that may wait for a disk. In both cases the reactor sends the bytes, without a copy. Over
%% TLS the process reads them in pieces, each after the client has received the one before.
-module(weir_http_file).

-export([find/3]).
-export([serve/3]).
-export([below/3]).
-export([read/2]).

-export_type([place/0, response/0, pieces/0]).

-include("weir_http_files.hrl").

%% Bytes per read.
-define(PIECE, 65536).

-type place() :: file:name_all() | #below{}.

-type pieces() :: [iodata() | {sendfile, weir_file:file(), Offset :: non_neg_integer(), Length :: non_neg_integer()}].

-type response() ::
    weir_http_direct:result() | {pieces, 200 | 206, weir_http_direct:fields(), Length :: non_neg_integer(), pieces()}.

%% @doc Returns the place of a file below a directory. If it is a directory, {@link serve/3} redirects to it.
-spec below(Root :: binary(), [binary()], refuse | follow) -> place().
below(Root, Names, Links) -> #below{root = Root, names = Names, links = Links}.

%% @doc Returns the response to a request for a file that is already open; `none' if it is not.
-spec find(weir_http_request:request(), place(), weir_http_direct:fields()) -> {ok, response()} | none.
find(Request, Place, Fields) ->
    case weir_http_open_files:find(name(Place)) of
        {ok, Opened} -> {ok, opened(Request, chosen(Request, Opened), Fields)};
        none -> none
    end.

%% @doc Returns the response to a request for a file. May wait for a disk.
-spec serve(weir_http_request:request(), place(), weir_http_direct:fields()) -> response().
serve(Request, Place, Fields) ->
    case weir_http_open_files:open(name(Place)) of
        {ok, Opened} -> opened(Request, chosen(Request, Opened), Fields);
        {error, directory} when is_record(Place, below) -> {redirect, 301, with_slash(Request)};
        {error, Reason} -> {reply, status(Reason), [], <<>>}
    end.

%% @doc Reads the next bytes of pieces; `done' after the last. Exits with `{shutdown, cut_off}' if a file became
%% shorter: its length has already been sent.
-spec read(pieces(), Read :: iodata()) -> {iodata(), pieces()} | done.
read([{sendfile, _File, _Offset, 0} | Pieces], Text) ->
    read(Pieces, Text);
read([{sendfile, File, Offset, Length} | Pieces], Text) ->
    Size = min(?PIECE, Length),
    case weir_file:read(File, Offset, Size) of
        {ok, <<Bytes:Size/binary>>} -> {[Text, Bytes], [{sendfile, File, Offset + Size, Length - Size} | Pieces]};
        {ok, _} -> exit({shutdown, cut_off})
    end;
read([More | Pieces], Text) ->
    read(Pieces, [Text, More]);
read([], Text) ->
    case iolist_size(Text) of
        0 -> done;
        _ -> {Text, []}
    end.

name(#below{} = Below) -> Below;
name(Path) when is_binary(Path) -> Path;
name(Path) -> unicode:characters_to_binary(Path, unicode, file:native_name_encoding()).

status(eacces) -> 403;
status(eperm) -> 403;
status(emfile) -> 503;
status(enfile) -> 503;
status(Reason) when
    Reason =:= enoent; Reason =:= enotdir; Reason =:= eloop; Reason =:= enametoolong; Reason =:= einval;
    Reason =:= not_regular; Reason =:= directory
->
    404;
status(Reason) ->
    error({file, Reason}).

%% A relative location: one that began with two slashes would lead to another host.
with_slash(Request) ->
    Last = lists:last(binary:split(weir_http_request:path(Request), <<"/">>, [global])),
    Query = weir_http_request:query(Request),
    [<<"./">>, Last, <<"/">>, [[$?, Query] || Query =/= <<>>]].

%% The last one is the original, which is always acceptable.
chosen(_Request, [Identity]) ->
    Identity;
chosen(Request, Opened) ->
    Offered = [Coding || #variant{coding = Coding} <- Opened, Coding =/= identity],
    Accepted = weir_http_coding:accepted(weir_http_request:field(<<"accept-encoding">>, Request), Offered),
    [Coding | _] = Accepted ++ [identity],
    lists:keyfind(Coding, #variant.coding, Opened).

%%% The response.

opened(Request, Variant = #variant{size = Size, tag = Tag, modified = Modified, validators = Validators}, Given) ->
    case weir_http_conditions:check(Request, Tag, Modified) of
        not_modified ->
            {reply, 304, [Field || {Name, _} = Field <- Given, not is_about_content(Name)] ++ Validators, <<>>};
        failed ->
            {reply, 412, [], <<>>};
        proceed ->
            Fields = [{<<"accept-ranges">>, <<"bytes">>} | coding(Variant)] ++ Validators ++ typed(Given, Variant),
            case ranges(Request, Tag, Modified, Size) of
                whole -> {pieces, 200, Fields, Size, [part({0, Size - 1}, Variant)]};
                {parts, [Range]} -> one_range(Range, Variant, Fields);
                {parts, Ranges} -> many_ranges(Ranges, Variant, Fields);
                unsatisfiable -> {reply, 416, [{<<"content-range">>, [<<"bytes */">>, integer_to_binary(Size)]}], <<>>}
            end
    end.

coding(#variant{coding = identity}) -> [];
coding(#variant{coding = Coding}) -> [{<<"content-encoding">>, Coding}].

typed(Given, #variant{type = Type}) ->
    case lists:any(fun({Name, _}) -> is_about_content(Name) end, Given) of
        true -> Given;
        false -> [{<<"content-type">>, Type} | Given]
    end.

is_about_content(Name) -> weir_http_value:lower(Name) =:= <<"content-type">>.

%% Ranges apply to GET only (RFC 9110, 14.2).
ranges(Request, Tag, Modified, Size) ->
    case weir_http_request:field(<<"range">>, Request) of
        undefined ->
            whole;
        Field ->
            case
                weir_http_request:method(Request) =:= <<"GET">> andalso
                    weir_http_conditions:may_be_in_parts(Request, Tag, Modified)
            of
                true -> weir_http_ranges:parse(Field, Size);
                false -> whole
            end
    end.

one_range(Range, Variant = #variant{size = Size}, Fields) ->
    {pieces, 206, [{<<"content-range">>, content_range(Range, Size)} | Fields], length_of(Range), [
        part(Range, Variant)
    ]}.

many_ranges(Ranges, Variant = #variant{size = Size}, Fields) ->
    Boundary = binary:encode_hex(rand:bytes(16)),
    {_, Type} = lists:keyfind(<<"content-type">>, 1, [{weir_http_value:lower(Name), Value} || {Name, Value} <- Fields]),
    End = [<<"\r\n--">>, Boundary, <<"--\r\n">>],
    Heads = [part_head(Boundary, Type, Range, Size) || Range <- Ranges],
    Pieces = lists:append([[Head, part(Range, Variant)] || {Head, Range} <- lists:zip(Heads, Ranges)]) ++ [End],
    Others = [Field || {Name, _} = Field <- Fields, not is_about_content(Name)],
    Length = iolist_size([Heads | End]) + lists:sum([length_of(Range) || Range <- Ranges]),
    {pieces, 206, [{<<"content-type">>, [<<"multipart/byteranges; boundary=">>, Boundary]} | Others], Length, Pieces}.

part_head(Boundary, Type, Range, Size) ->
    [
        <<"\r\n--">>, Boundary, <<"\r\ncontent-type: ">>, Type,
        <<"\r\ncontent-range: ">>, content_range(Range, Size), <<"\r\n\r\n">>
    ].

part({First, _} = Range, #variant{file = File}) -> {sendfile, File, First, length_of(Range)}.

length_of({First, Last}) -> Last - First + 1.

content_range({First, Last}, Size) ->
    [<<"bytes ">>, integer_to_binary(First), $-, integer_to_binary(Last), $/, integer_to_binary(Size)].
