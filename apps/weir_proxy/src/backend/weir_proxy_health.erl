%% @private
%% @doc Decides whether a server is up: `rise' or `fall' checks in a row with the same result change its state. Also
%% checks the options of checks. Pure functions.
-module(weir_proxy_health).

-export([options/2]).
-export([longest/0]).
-export([new/1]).
-export([change/2]).
-export([checked/2]).
-export([is_of_this_machine/1]).

-export_type([health/0]).

-record(health, {
    rise :: pos_integer(),
    fall :: pos_integer(),
    is_up = true :: boolean(),
    %% Results in a row that contradict is_up.
    against = 0 :: non_neg_integer()
}).

-opaque health() :: #health{}.

%% @doc Checks the option `health' of a backend.
-spec options(weir_proxy_schema:path(), term()) -> #{atom() => term()}.
options(Path, Map) when is_map(Map) ->
    Kinds = [{kind, weir_proxy_schema:word([tcp, send_expect, http, tls, postgres, redis, smtp]), tcp}],
    #{kind := Kind} = weir_proxy_schema:table(Path, maps:with([kind, <<"kind">>], Map), Kinds),
    weir_proxy_schema:table(Path, Map, Kinds ++ of_all() ++ of_kind(Kind));
options(Path, Value) ->
    weir_proxy_schema:refuse(Path, Value, "a table of options, or off").

of_all() ->
    [
        {interval, weir_proxy_schema:time(10), 2000},
        {timeout, weir_proxy_schema:time(1), 2000},
        {rise, weir_proxy_schema:integer(1, 1000), 2},
        {fall, weir_proxy_schema:integer(1, 1000), 3},
        {port, port(), undefined},
        %% `undefined': the same as the backend's, see weir_proxy_config.
        {send_proxy, weir_proxy_schema:word([off, v1, v2]), undefined}
    ].

%% @doc Returns how many bytes of an answer are read, at most.
-spec longest() -> pos_integer().
longest() -> 16#4000.

%% Only the options of this kind: others would have no effect.
of_kind(send_expect) -> [{send, weir_proxy_schema:text(), <<>>}, {expect, fun expect/2}];
of_kind(http) -> [{path, fun path/2, <<"/">>}, {host, fun host/2, <<"localhost">>}];
of_kind(tls) -> [{host, fun host/2, <<"localhost">>}];
of_kind(postgres) -> [{user, weir_proxy_schema:text(), <<"weir">>}];
of_kind(_Kind) -> [].

expect(Path, Value) ->
    Text = (weir_proxy_schema:text())(Path, Value),
    byte_size(Text) =< longest() orelse
        weir_proxy_schema:refuse(
            Path, Value, io_lib:format("at most ~b bytes, because no more of an answer is read", [longest()])
        ),
    Text.

%% Both become part of an HTTP request. Blanks or line feeds would change it.
path(Path, Value) -> matching(Path, Value, "^/[!-~]*$", "a path such as \"/health\", without blanks").

host(Path, Value) -> matching(Path, Value, "^[!-~]+$", "a name, without blanks").

matching(Path, Value, Pattern, Allowed) ->
    Text = (weir_proxy_schema:text())(Path, Value),
    case re:run(Text, Pattern, [{capture, none}, dollar_endonly]) of
        match -> Text;
        nomatch -> weir_proxy_schema:refuse(Path, Value, Allowed)
    end.

port() ->
    fun
        (_Path, undefined) -> undefined;
        (Path, Value) -> (weir_proxy_schema:integer(1, 65535))(Path, Value)
    end.

%% @doc Returns the state of a new server: up until checks have failed.
-spec new(#{rise := pos_integer(), fall := pos_integer(), _ => _}) -> health().
new(#{rise := Rise, fall := Fall}) -> #health{rise = Rise, fall = Fall}.

%% @doc Changes `rise' and `fall'; the count so far stays.
-spec change(#{rise := pos_integer(), fall := pos_integer(), _ => _}, health()) -> health().
change(#{rise := Rise, fall := Fall}, Health) -> Health#health{rise = Rise, fall = Fall}.

%% @doc Applies the result of a check. Returns the change that it caused, or `same'.
-spec checked(boolean(), health()) -> {up | down | same, health()}.
checked(Ok, Health = #health{is_up = Ok}) ->
    {same, Health#health{against = 0}};
checked(true, Health = #health{against = Against, rise = Rise}) when Against + 1 >= Rise ->
    {up, Health#health{is_up = true, against = 0}};
checked(false, Health = #health{against = Against, fall = Fall}) when Against + 1 >= Fall ->
    {down, Health#health{is_up = false, against = 0}};
checked(_Ok, Health = #health{against = Against}) ->
    {same, Health#health{against = Against + 1}}.

%% @doc Returns whether connecting failed because this machine lacks a descriptor, a port or memory. That does not
%% count against the server.
-spec is_of_this_machine(term()) -> boolean().
is_of_this_machine(Reason) -> lists:member(Reason, [emfile, enfile, enobufs, enomem, eaddrnotavail, system_limit]).
