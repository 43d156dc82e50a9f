%% @private
%% @doc The routes of the page, and the answers to their requests.
-module(weir_scope_routes).
-behaviour(weir_http_direct).
-behaviour(weir_http_events).

-export([all/1]).
-export([handle/2]).
-export([open/2]).

%% Everything comes from this server, and no site may show the page in a frame.
-define(POLICY,
    <<"default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'">>
).

-spec all(weir_scope_guard:guard()) -> [weir_http_routes:route()].
all(Guard) ->
    Get = #{methods => [<<"GET">>]},
    Grain = fun
        (<<"second">>) -> {ok, second};
        (<<"minute">>) -> {ok, minute};
        (_) -> error
    end,
    [
        {"/", ?MODULE, {Guard, index}, Get},
        {"/metrics", ?MODULE, {Guard, metrics}, Get},
        {"/about", ?MODULE, {Guard, about}, Get},
        {"/history/:grain", ?MODULE, {Guard, history}, Get#{constraints => #{grain => Grain}}},
        {"/look/:tab", ?MODULE, {Guard, look}, Get},
        {"/stream", ?MODULE, {Guard, stream}, Get},
        weir_http_directory:route("/page", directory(), #{
            fields => [{<<"cache-control">>, <<"no-cache">>}, {<<"x-content-type-options">>, <<"nosniff">>}]
        })
    ].

directory() ->
    case code:priv_dir(weir_scope) of
        {error, bad_name} -> filename:join([filename:dirname(filename:dirname(code:which(?MODULE))), "priv", "page"]);
        Directory -> filename:join(Directory, "page")
    end.

%% @doc Answers a request. The page itself needs no token, because it contains no data. Requests for data wait for the
%% feed in a separate process.
-spec handle(weir_http_request:request(), {weir_scope_guard:guard(), atom()}) -> weir_http_direct:result().
handle(Request, {Guard, index}) ->
    case weir_scope_guard:check_host(Request, Guard) of
        ok ->
            {file, filename:join(directory(), "index.html"), [
                {<<"content-security-policy">>, ?POLICY},
                {<<"referrer-policy">>, <<"no-referrer">>},
                {<<"cache-control">>, <<"no-cache">>}
            ]};
        Refused ->
            Refused
    end;
handle(Request, {Guard, What}) ->
    case weir_scope_guard:check(Request, Guard) of
        %% Use the request of this call: the one that is passed to the process has no bindings.
        ok -> {process, fun(_) -> answer(What, Request) end};
        Refused -> Refused
    end.

answer(metrics, _Request) ->
    answered(weir_scope_feed:metrics(), fun(Text) ->
        {reply, 200, [{<<"content-type">>, <<"application/openmetrics-text; version=1.0.0; charset=utf-8">>}], Text}
    end);
answer(about, _Request) ->
    answered(weir_scope_feed:about(), fun json/1);
answer(history, Request) ->
    case number(<<"after">>, Request) of
        {ok, After} -> answered(weir_scope_feed:history(weir_http_request:binding(grain, Request), After), fun json/1);
        error -> wrong("after must be a number of milliseconds")
    end;
answer(look, Request) ->
    Tab = weir_http_request:binding(tab, Request),
    Sort = proplists:get_value(<<"sort">>, weir_http_request:query_pairs(Request), default),
    case {weir_scope_tabs:find(Tab, Sort), number(<<"at">>, Request)} of
        {{ok, Name, By}, {ok, At}} -> answered(weir_scope_feed:look(Name, By, At), fun json/1);
        {error, _} -> {reply, 404, [{<<"content-type">>, <<"text/plain">>}], "no such tab or column\n"};
        {_, error} -> wrong("at must be a number of milliseconds")
    end;
answer(stream, _Request) ->
    case weir_scope_feed:stream() of
        {ok, Group} -> {events, ?MODULE, Group, #{retry => 1000}};
        {error, _} = Error -> answered(Error, fun json/1)
    end.

answered({ok, Value}, Reply) ->
    Reply(Value);
answered({error, Reason}, _Reply) ->
    {reply, 503, [{<<"content-type">>, <<"text/plain; charset=utf-8">>}], weir_scope_feed:explain(Reason)}.

json(Value) ->
    {reply, 200, [{<<"content-type">>, <<"application/json">>}, {<<"cache-control">>, <<"no-store">>}],
        weir_json:compact(Value)}.

wrong(Text) -> {reply, 400, [{<<"content-type">>, <<"text/plain">>}], [Text, $\n]}.

number(Name, Request) ->
    try
        {ok, binary_to_integer(proplists:get_value(Name, weir_http_request:query_pairs(Request), <<"0">>))}
    catch
        error:badarg -> error
    end.

%% @private
-spec open(weir_http_events:stream(), weir_group:group()) -> weir_http_events:result().
open(Stream, Group) ->
    case weir_group:join(Group, Stream) of
        ok -> {send, #{comment => <<"welcome">>}, Group};
        {error, _} -> {close, Group}
    end.
