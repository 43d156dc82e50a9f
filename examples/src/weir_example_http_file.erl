%% @doc Answers requests for `/' with one file, with `weir_http': the kernel sends it from the page cache to the
%% socket, as in {@link weir_example_file_httpd}, but without a process for each connection.
-module(weir_example_http_file).
-behaviour(weir_http_direct).

-export([start/1]).

-export([handle/2]).

%% @doc Starts the server. `file' is the file; `port' is the port to listen on (default 0: a free one); of `listen'
%% only the address is used.
-spec start(#{
    file := file:filename(), port => inet:port_number(), listen => [gen_tcp:listen_option()], _ => _
}) -> {ok, weir_example_reactors:server()} | {error, term()}.
start(#{file := Name} = Options) ->
    case weir_file:open(Name) of
        {ok, _, _} -> weir_example_http_server:start(Options, [{"/", ?MODULE, list_to_binary(Name)}]);
        {error, Reason} -> {error, {not_opened, Name, Reason}}
    end.

-spec handle(weir_http_request:request(), binary()) -> weir_http_direct:result().
handle(_Request, Name) -> {file, Name}.
