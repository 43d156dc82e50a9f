%% @doc Forms in parts (`multipart/form-data', RFC 7578), with which browsers upload files.
%%
%% A process handler of a route with `body => stream' reads them as they arrive, with 64 KiB in memory:
%% ```
%% serve(Request, Directory) ->
%%     {ok, Form} = weir_http_multipart:new(Request, #{}),
%%     store(weir_http_multipart:read_part(Form), Directory).
%%
%% store({part, #{name := <<"file">>}, Form}, Directory) ->
%%     {ok, File} = file:open(filename:join(Directory, "upload"), [write, raw]),
%%     store(copy(weir_http_multipart:read(Form), File), Directory);
%% store({part, _Other, Form}, Directory) ->
%%     store(weir_http_multipart:read_part(Form), Directory);
%% store(done, _Directory) ->
%%     {reply, 201, [], <<>>};
%% store({error, Reason}, _Directory) ->
%%     {reply, weir_http_multipart:status(Reason), [], <<>>}.
%%
%% copy({more, Bytes, Form}, File) ->
%%     ok = file:write(File, Bytes),
%%     copy(weir_http_multipart:read(Form), File);
%% copy({done, Form}, File) ->
%%     ok = file:close(File),
%%     weir_http_multipart:read_part(Form);
%% copy({error, _} = Error, _File) ->
%%     Error.
%% '''
%% If the body has already arrived, as in direct handlers, the same functions do not wait, and {@link parts/2} returns
%% all parts at once.
%%
%% Names of parts come from the client: a file name may contain slashes and dots. Do not use it as a path.
-module(weir_http_multipart).

-export([new/2]).
-export([read_part/1]).
-export([read/1]).
-export([parts/2]).
-export([status/1]).

-export_type([multipart/0, part/0, options/0, reason/0]).

-type options() :: #{max_parts => pos_integer(), max_part_head => pos_integer(), max_part => pos_integer() | infinity}.
%% `max_parts' (100), bytes of the fields of a part (4096), and bytes of the data of a part (`infinity'). `max_body' of
%% the route limits the total.

-type part() :: #{
    name := binary(),
    filename => binary(),
    type := binary(),
    fields := [{Name :: binary(), Value :: binary()}]
}.
%% `type' defaults to `text/plain'. `fields' are all fields of the part, with names in lower case.

-type reason() ::
    not_multipart
    | {bad_multipart, preamble | boundary | fields | disposition | incomplete}
    | {too_large, parts | part_head | part}
    | closed.
%% `closed': the client disconnected.

-record(multipart, {
    parser :: weir_http_multipart_parser:parser(),
    %% Whether more bytes have to be read from the client.
    is_open :: boolean(),
    %% The limit for the data of a part, and how much of it the current part has left.
    max_part :: pos_integer() | infinity,
    left = 0 :: non_neg_integer() | infinity,
    in_part = false :: boolean()
}).

-opaque multipart() :: #multipart{}.

-define(DEFAULTS, #{max_parts => 100, max_part_head => 4096, max_part => infinity}).

%% @doc Returns the form in the body of a request. `not_multipart': the Content-Type is another, or has no boundary.
%% Fails with `{bad_option, Name, Value, Allowed}'.
-spec new(weir_http_request:request(), options()) -> {ok, multipart()} | {error, not_multipart}.
new(Request, Options) ->
    maps:foreach(fun check/2, Options),
    #{max_parts := Parts, max_part_head := Head, max_part := Part} = maps:merge(?DEFAULTS, Options),
    case weir_http_value:parameters(weir_http_request:field(<<"content-type">>, Request, <<>>)) of
        {<<"multipart/form-data">>, Parameters} ->
            case lists:keyfind(<<"boundary">>, 1, Parameters) of
                {_, Boundary} when byte_size(Boundary) >= 1, byte_size(Boundary) =< 70 ->
                    Parser = weir_http_multipart_parser:new(Boundary, {Parts, Head}),
                    {ok, #multipart{
                        parser = weir_http_multipart_parser:feed(weir_http_request:body(Request), Parser),
                        is_open = weir_http_process:is_body_open(),
                        max_part = Part
                    }};
                _ ->
                    {error, not_multipart}
            end;
        _ ->
            {error, not_multipart}
    end.

check(max_part, infinity) -> ok;
check(Name, Value) when is_map_key(Name, ?DEFAULTS), is_integer(Value), Value > 0 -> ok;
check(Name, Value) when is_map_key(Name, ?DEFAULTS) -> error({bad_option, Name, Value, "a number from 1 on"});
check(Name, Value) -> error({bad_option, Name, Value, "unknown option; valid: max_parts, max_part_head, max_part"}).

%% @doc Returns the next part. Unread data of the part before is skipped.
-spec read_part(multipart()) -> {part, part(), multipart()} | done | {error, reason()}.
read_part(Multipart = #multipart{in_part = true}) ->
    case read(Multipart) of
        {more, _, More} -> read_part(More);
        {done, More} -> read_part(More);
        {error, _} = Error -> Error
    end;
read_part(Multipart = #multipart{max_part = MaxPart}) ->
    case next(Multipart) of
        {part, Lines, Next} ->
            case part(weir_http_nif:fields(Lines)) of
                {ok, Part} -> {part, Part, Next#multipart{in_part = true, left = MaxPart}};
                error -> {error, {bad_multipart, disposition}}
            end;
        done ->
            done;
        {error, _} = Error ->
            Error
    end.

%% @doc Returns the next piece of data of the part that was read last.
-spec read(multipart()) -> {more, binary(), multipart()} | {done, multipart()} | {error, reason()}.
read(Multipart = #multipart{in_part = false}) ->
    {done, Multipart};
read(Multipart = #multipart{left = Left}) ->
    case next(Multipart) of
        {data, Bytes, Next} when Left =:= infinity -> {more, Bytes, Next};
        {data, Bytes, Next} when byte_size(Bytes) =< Left ->
            {more, Bytes, Next#multipart{left = Left - byte_size(Bytes)}};
        {data, _, _} ->
            {error, {too_large, part}};
        {end_of_part, Next} ->
            {done, Next#multipart{in_part = false}};
        {error, _} = Error ->
            Error
    end.

%% @doc Returns all parts with their data, in their order.
-spec parts(weir_http_request:request(), options()) -> {ok, [{part(), Data :: binary()}]} | {error, reason()}.
parts(Request, Options) ->
    case new(Request, Options) of
        {ok, Multipart} -> parts(read_part(Multipart), Multipart, []);
        {error, _} = Error -> Error
    end.

parts({part, Part, Multipart}, _, Parts) ->
    case data(read(Multipart), []) of
        {ok, Data, Next} -> parts(read_part(Next), Next, [{Part, Data} | Parts]);
        {error, _} = Error -> Error
    end;
parts(done, _, Parts) ->
    {ok, lists:reverse(Parts)};
parts({error, _} = Error, _, _Parts) ->
    Error.

data({more, Bytes, Multipart}, Data) -> data(read(Multipart), [Data, Bytes]);
data({done, Multipart}, Data) -> {ok, iolist_to_binary(Data), Multipart};
data({error, _} = Error, _Data) -> Error.

%% @doc Returns the status for the response to a form that could not be read.
-spec status(reason()) -> 400 | 413 | 415.
status(not_multipart) -> 415;
status({too_large, _}) -> 413;
status(_) -> 400.

next(Multipart = #multipart{parser = Parser}) ->
    case weir_http_multipart_parser:next(Parser) of
        {What, Bytes, Next} when What =:= part; What =:= data -> {What, Bytes, Multipart#multipart{parser = Next}};
        {end_of_part, Next} -> {end_of_part, Multipart#multipart{parser = Next}};
        more -> fetch(Multipart);
        Other -> Other
    end.

fetch(#multipart{is_open = false}) ->
    {error, {bad_multipart, incomplete}};
fetch(Multipart = #multipart{parser = Parser}) ->
    case weir_http_process:read_body() of
        {more, Bytes} ->
            next(Multipart#multipart{parser = weir_http_multipart_parser:feed(Bytes, Parser)});
        {done, Bytes, _} ->
            next(Multipart#multipart{parser = weir_http_multipart_parser:feed(Bytes, Parser), is_open = false});
        {error, closed} = Error ->
            Error
    end.

%% Forms may not use `filename*' (RFC 7578, 4.2).
part(Fields) ->
    Dispositions = [weir_http_value:parameters(Value) || {<<"content-disposition">>, Value} <- Fields],
    case Dispositions of
        [{<<"form-data">>, Parameters}] ->
            case {lists:keyfind(<<"name">>, 1, Parameters), lists:keyfind(<<"filename">>, 1, Parameters)} of
                {{_, Name}, {_, Filename}} ->
                    {ok, #{name => Name, filename => Filename, type => type(Fields), fields => Fields}};
                {{_, Name}, false} ->
                    {ok, #{name => Name, type => type(Fields), fields => Fields}};
                {false, _} ->
                    error
            end;
        _ ->
            error
    end.

type(Fields) ->
    case lists:keyfind(<<"content-type">>, 1, Fields) of
        {_, Type} -> Type;
        false -> <<"text/plain">>
    end.
