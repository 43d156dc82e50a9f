%% @doc `weir scope --http': the page of a node in the foreground, until SIGTERM or SIGINT.
%%
%% It prints `ready PORT', then `pid PID', then the address of the page with a token that is new for each run.
-module(weir_cli_scope_page).

-export([node/2]).
-export([serve/2]).

%% @doc Serves the page of a running node.
-spec node(string(), weir_cli_options:values()) -> weir_cli:outcome().
node(Name, Values) ->
    case weir_cli_node:connect(Name, Values) of
        {ok, Node} ->
            Options = #{load => not maps:get('no-load', Values, false)},
            %% Fails now if the node cannot be visited. If it is lost later, the page says so.
            case weir_scope:open(Node, Options) of
                {ok, View} ->
                    Outcome = serve({weir_scope_feed, {Node, Options}}, Values),
                    ok = weir_scope:close(View),
                    Outcome;
                {error, Reason} ->
                    {failed, weir_cli_node:explain(Reason)}
            end;
        Failure ->
            Failure
    end.

%% @doc Serves the page of a source: a node or a recording.
-spec serve(weir_scope_web:source(), weir_cli_options:values()) -> weir_cli:outcome().
serve(Source, #{http := Port} = Values) ->
    weir_cli_signal:report_to(self()),
    %% The command reports failures in one line, so log reports are turned off.
    ok = logger:set_primary_config(level, none),
    {ok, _} = application:ensure_all_started(weir_http),
    Token = case Values of #{'no-token' := true} -> none; _ -> binary:encode_hex(crypto:strong_rand_bytes(16)) end,
    {ok, Checked} = weir_scope_web:check(#{port => Port, token => Token}),
    _ = process_flag(trap_exit, true),
    case weir_scope_web:start_link(Source, Checked) of
        {ok, Page} ->
            Own = weir_scope_web:port(),
            io:format("ready ~b~npid ~s~nhttp://127.0.0.1:~b/~s~n", [Own, os:getpid(), Own, fragment(Token)]),
            until_stopped(Page);
        {error, Reason} ->
            {failed, io_lib:format("cannot listen on 127.0.0.1 port ~b: ~0tp", [Port, Reason])}
    end.

fragment(none) -> "";
fragment(Token) -> ["#token=", Token].

until_stopped(Page) ->
    receive
        stop ->
            exit(Page, shutdown),
            receive {'EXIT', Page, _} -> ok end;
        {'EXIT', Page, Reason} ->
            {failed, io_lib:format("the page crashed: ~0tp", [Reason])}
    end.
