%% @doc A REST service: notes as JSON, stored in an ETS table.
%%
%% <table>
%% <tr><td>`GET /notes'</td><td>200: all notes</td></tr>
%% <tr><td>`POST /notes'</td><td>201 with Location; 409 if the given id is taken</td></tr>
%% <tr><td>`GET /notes/:id'</td><td>200 with ETag; 304 if the client has it (If-None-Match); 404</td></tr>
%% <tr><td>`PUT /notes/:id'</td><td>200; 412 if the note has changed (If-Match); 404</td></tr>
%% <tr><td>`DELETE /notes/:id'</td><td>204; 412; 404</td></tr>
%% </table>
%% Other methods get 405 with Allow, a body that is not a note 400, and a content type other than JSON 415.
-module(weir_example_notes).
-behaviour(weir_http_direct).

-export([start/1]).

-export([handle/2]).

%% @doc Starts the server. `port' is the port to listen on (default 0: a free one); of `listen' only the address is
%% used. The notes are lost when the caller ends.
-spec start(#{port => inet:port_number(), listen => [gen_tcp:listen_option()], _ => _}) ->
    {ok, weir_example_reactors:server()} | {error, term()}.
start(Options) ->
    Notes = ets:new(notes, [public, ordered_set, {read_concurrency, true}]),
    weir_example_http_server:start(Options, [
        {"/notes", ?MODULE, {all, Notes}, #{methods => [<<"GET">>, <<"POST">>], max_body => 65536}},
        {"/notes/:id", ?MODULE, {one, Notes}, #{methods => [<<"GET">>, <<"PUT">>, <<"DELETE">>], max_body => 65536}}
    ]).

%% A note is `{Id, Text, Version, Second}'. A direct handler may use an ETS table, because that does not block.
-spec handle(weir_http_request:request(), {all | one, ets:table()}) -> weir_http_direct:result().
handle(Request, {all, Notes}) ->
    case weir_http_request:method(Request) of
        <<"POST">> -> with_note(Request, fun(Note) -> create(Note, Notes) end);
        _ -> json(200, [], [#{<<"id">> => Id, <<"text">> => Text} || {Id, Text, _, _} <- ets:tab2list(Notes)])
    end;
handle(Request, {one, Notes}) ->
    case ets:lookup(Notes, weir_http_request:binding(id, Request)) of
        [Note] -> one(weir_http_request:method(Request), condition(Note, Request), Note, Request, Notes);
        [] -> {reply, 404, [], <<>>}
    end.

create(Note = #{<<"text">> := Text}, Notes) ->
    Id = maps:get(<<"id">>, Note, integer_to_binary(erlang:unique_integer([positive]))),
    case ets:insert_new(Notes, {Id, Text, 1, erlang:system_time(second)}) of
        true ->
            json(201, [{<<"location">>, [<<"/notes/">>, uri_string:quote(Id)]}, {<<"etag">>, tag(1)}], #{
                <<"id">> => Id, <<"text">> => Text
            });
        false ->
            {reply, 409, [], <<>>}
    end.

condition({_, _, Version, Second}, Request) -> weir_http_conditions:check(Request, tag(Version), Second).

one(<<"PUT">>, proceed, {Id, _, Version, _} = Before, Request, Notes) ->
    with_note(Request, fun(#{<<"text">> := Text}) ->
        %% Only if the note is still the one whose conditions were checked: handlers run in several reactors.
        After = {Id, Text, Version + 1, erlang:system_time(second)},
        case ets:select_replace(Notes, [{Before, [], [{const, After}]}]) of
            1 -> json(200, [{<<"etag">>, tag(Version + 1)}], #{<<"id">> => Id, <<"text">> => Text});
            0 -> {reply, 412, [], <<>>}
        end
    end);
one(<<"DELETE">>, proceed, Note, _Request, Notes) ->
    case ets:select_delete(Notes, [{Note, [], [true]}]) of
        1 -> {reply, 204, [], <<>>};
        0 -> {reply, 412, [], <<>>}
    end;
one(_Method, proceed, {Id, Text, Version, _}, _Request, _Notes) ->
    json(200, [{<<"etag">>, tag(Version)}], #{<<"id">> => Id, <<"text">> => Text});
one(_Method, not_modified, {_, _, Version, _}, _Request, _Notes) ->
    {reply, 304, [{<<"etag">>, tag(Version)}], <<>>};
one(_Method, failed, _Note, _Request, _Notes) ->
    {reply, 412, [], <<>>}.

with_note(Request, Fun) ->
    case
        {
            weir_http_request:field(<<"content-type">>, Request, <<>>),
            weir_example_json:decode(weir_http_request:body(Request))
        }
    of
        {<<"application/json", _/binary>>, {ok, #{<<"text">> := Text} = Note}} when
            is_binary(Text), not is_map_key(<<"id">>, Note) orelse is_binary(map_get(<<"id">>, Note))
        ->
            Fun(Note);
        {<<"application/json", _/binary>>, _} ->
            json(400, [], #{<<"error">> => <<"an object with a text and an optional id is needed">>});
        _ ->
            {reply, 415, [{<<"accept">>, <<"application/json">>}], <<>>}
    end.

json(Status, Fields, Value) ->
    {reply, Status, [{<<"content-type">>, <<"application/json">>} | Fields], weir_example_json:encode(Value)}.

tag(Version) -> <<$", (integer_to_binary(Version))/binary, $">>.
