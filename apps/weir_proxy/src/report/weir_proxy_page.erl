%% @private
%% @doc The statistics over HTTP: `/' is a page, `/metrics' is for Prometheus, `/info' is JSON.
-module(weir_proxy_page).
-behaviour(weir_http_direct).

-export([adjust/4]).
-export([handle/2]).

-define(LISTENER(Proxy, Endpoint), {weir_proxy_page, Proxy, Endpoint}).

%% @doc Opens, moves or closes the listener, as the configuration says. After an error the old one still listens.
%% `IsShared': another program may listen on the same address.
-spec adjust(term(), Before, Wanted, IsShared :: boolean()) -> ok | {error, term()} when
    Before :: weir_proxy_address:endpoint() | off, Wanted :: weir_proxy_address:endpoint() | off.
adjust(_Proxy, Same, Same, _IsShared) ->
    ok;
adjust(Proxy, Before, off, _IsShared) ->
    weir_http:stop_listener(?LISTENER(Proxy, Before));
adjust(Proxy, Before, {Ip, Port} = Endpoint, IsShared) ->
    Options = #{ip => Ip, port => Port, shared => IsShared, max_connections => 256},
    Routes = [
        {Path, ?MODULE, {What, Proxy}, #{methods => [<<"GET">>]}}
     || {Path, What} <- [{"/", page}, {"/metrics", metrics}, {"/info", info}]
    ],
    case weir_http:start_listener(?LISTENER(Proxy, Endpoint), Options, Routes) of
        {ok, _} when Before =:= off -> ok;
        {ok, _} -> adjust(Proxy, Before, off, IsShared);
        %% The proxy's process was killed, and this is its successor.
        {error, {already_started, _}} -> ok;
        {error, Reason} -> {error, {listen, weir_proxy_address:to_text(Endpoint), Reason}}
    end.

%% Answers in a process, because reading the counters calls the processes of backends.
-spec handle(weir_http_request:request(), {page | metrics | info, term()}) -> weir_http_direct:result().
handle(_Request, {What, Proxy}) ->
    {process, fun(_) -> answer(What, Proxy) end}.

answer(What, Proxy) ->
    case weir_proxy:info(Proxy) of
        {ok, Info} ->
            {Type, Body} = body(What, Info),
            {reply, 200, [{<<"content-type">>, Type}], Body};
        {error, _} ->
            {reply, 503, [], <<>>}
    end.

%% Only this proxy: another one in the same VM may use the same names.
body(metrics, Info) -> {<<"text/plain; version=0.0.4; charset=utf-8">>, weir_proxy_metrics:text([Info])};
body(info, Info) -> {<<"application/json">>, weir_json:encode(weir_proxy_control:plain(Info))};
body(page, Info) -> {<<"text/html; charset=utf-8">>, page(Info)}.

page(#{frontends := Frontends, backends := Backends, sessions := Sessions}) ->
    [
        "<!doctype html><meta charset=utf-8><meta http-equiv=refresh content=5><title>Weir proxy</title>",
        "<style>body{font:14px sans-serif;margin:2em}table{border-collapse:collapse;margin:1em 0}",
        "td,th{padding:.25em .8em;border-bottom:1px solid #ccc;text-align:right}",
        "td:first-child,th:first-child{text-align:left}",
        ".down,.failing,.unresolved{background:#fdd}.drain,.maint{background:#ffd}</style>",
        "<h1>Weir proxy</h1><p>",
        integer_to_list(Sessions),
        " sessions</p>",
        table("frontend", [{Name, [], Numbers} || {Name, Numbers} <- maps:to_list(Frontends)]),
        [
            table(
                Name,
                [{Server, State, Numbers} || #{name := Server, state := State} = Numbers <- Servers] ++
                    [{<<"all">>, [], All}]
            )
         || {Name, #{servers := Servers} = All} <- maps:to_list(Backends)
        ]
    ].

table(Title, Rows) ->
    Columns = [current_sessions, max_sessions, sessions_total, bytes_in, bytes_out, connection_errors, queue_current],
    [
        "<table><tr><th>",
        escaped(Title),
        "<th>state",
        [["<th>", string:replace(atom_to_list(Column), "_", " ", all)] || Column <- Columns],
        [
            [
                "<tr class=",
                class(State),
                "><td>",
                escaped(Name),
                "<td>",
                shown(State),
                [["<td>", integer_to_list(maps:get(Column, Numbers))] || Column <- Columns]
            ]
         || {Name, State, Numbers} <- Rows
        ],
        "</table>"
    ].

shown([]) -> "";
shown(State) -> atom_to_list(State).

class([]) -> "\"\"";
class(State) -> atom_to_list(State).

escaped(Text) ->
    Entities = [{"&", "&amp;"}, {"<", "&lt;"}],
    lists:foldl(fun({From, To}, Done) -> string:replace(Done, From, To, all) end, Text, Entities).
