%% @doc Serves the files of a directory: a handler for a route that ends in `*path'.
%%
%% ```
%% {ok, _} = weir_http:start_listener(web, #{port => 8080}, [
%%     {"/hello", hello, []},
%%     weir_http_directory:route("/static", "priv/www", #{fields => [{<<"cache-control">>, <<"max-age=3600">>}]})
%% ]).
%% '''
%%
%% Files are answered as {@link weir_http_direct} describes for `{file, Path}'. A path that ends in a slash is answered
%% with `index.html'; a directory without the slash is redirected to the path with it. Directories are not listed.
%%
%% Nothing outside the directory can be reached: `..' and `.' are resolved first, however they are encoded, and a
%% segment that contains an encoded slash or zero byte matches no file. Names that begin with a dot are not served,
%% except `.well-known'. Symbolic links anywhere in the path are not followed unless the option allows it.
-module(weir_http_directory).
-behaviour(weir_http_direct).

-export([route/3]).
-export([handle/2]).

-export_type([options/0]).

-type options() :: #{fields => weir_http_direct:fields(), symbolic_links => refuse | follow}.
%% `fields' are sent with each file. `symbolic_links' (`refuse'): with `follow' links are followed, also to outside the
%% directory.

-record(directory, {path :: binary(), fields :: weir_http_direct:fields(), links :: refuse | follow}).

%% @doc Returns a route for GET and HEAD of the files below a prefix such as `"/static"' or `"/"'. Fails with
%% `{bad_option, Name, Value, Allowed}' for a wrong option, or if the directory does not exist.
-spec route(Prefix :: string() | binary(), file:name_all(), options()) -> weir_http_routes:route().
route(Prefix, Directory, Options) when is_map(Options) ->
    maps:foreach(fun check/2, Options),
    filelib:is_dir(Directory) orelse error({bad_option, directory, Directory, "an existing directory"}),
    State = #directory{
        path = bytes(filename:absname(Directory)),
        fields = maps:get(fields, Options, []),
        links = maps:get(symbolic_links, Options, refuse)
    },
    {string:trim(unicode:characters_to_list(Prefix), trailing, "/") ++ "/*path", ?MODULE, State, #{
        methods => [<<"GET">>]
    }}.

bytes(Path) when is_binary(Path) -> Path;
bytes(Path) -> unicode:characters_to_binary(Path, unicode, file:native_name_encoding()).

check(symbolic_links, Links) when Links =:= follow; Links =:= refuse -> ok;
check(symbolic_links, Value) -> error({bad_option, symbolic_links, Value, "follow or refuse"});
check(fields, Fields) when is_list(Fields) -> ok;
check(fields, Value) -> error({bad_option, fields, Value, "a list of {Name, Value}"});
check(Name, Value) -> error({bad_option, Name, Value, "unknown option; valid: fields, symbolic_links"}).

%% @private
-spec handle(weir_http_request:request(), #directory{}) -> weir_http_direct:result().
handle(Request, #directory{path = Root, fields = Fields, links = Links}) ->
    Segments = with_index(weir_http_request:binding(path, Request)),
    case lists:all(fun is_name/1, Segments) of
        true -> {file, weir_http_file:below(Root, Segments, Links), Fields};
        false -> {reply, 404, [], <<>>}
    end.

with_index(Segments) ->
    case lists:last(Segments) of
        <<>> -> lists:droplast(Segments) ++ [<<"index.html">>];
        _ -> Segments
    end.

is_name(<<".well-known">>) -> true;
is_name(<<".", _/binary>>) -> false;
is_name(<<>>) -> false;
is_name(Segment) -> binary:match(Segment, [<<"/">>, <<0>>]) =:= nomatch.
