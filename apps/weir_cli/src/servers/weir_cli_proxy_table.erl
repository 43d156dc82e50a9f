%% @doc Formats answers of a proxy as tables for a terminal.
-module(weir_cli_proxy_table).

-export([text/1]).

-define(SERVER, [
    <<"name">>,
    <<"state">>,
    <<"weight">>,
    <<"current_sessions">>,
    <<"sessions_total">>,
    <<"connection_errors">>,
    <<"bytes_in">>,
    <<"bytes_out">>
]).
-define(SESSION, [
    <<"client">>,
    <<"frontend">>,
    <<"backend">>,
    <<"server">>,
    <<"age_ms">>,
    <<"idle_ms">>,
    <<"bytes_in">>,
    <<"bytes_out">>
]).

%% @doc Returns tables for an answer to `status', `servers' or `sessions', and a line for the number that
%% `close-sessions' answers.
-spec text(weir_json:value()) -> iodata().
text(#{<<"frontends">> := Frontends, <<"backends">> := Backends}) ->
    Named = [
        Numbers#{<<"name">> => Name, <<"listen">> => iolist_to_binary(lists:join(" ", Listen))}
     || {Name, Numbers = #{<<"listen">> := Listen}} <- maps:to_list(Frontends)
    ],
    [
        table(
            [<<"name">>, <<"listen">>, <<"current_sessions">>, <<"sessions_total">>, <<"bytes_in">>, <<"bytes_out">>],
            Named
        ),
        $\n,
        text(maps:map(fun(_, #{<<"servers">> := Servers}) -> Servers end, Backends))
    ];
text(Backends) when is_map(Backends) ->
    table([<<"backend">> | ?SERVER], [
        Server#{<<"backend">> => Name}
     || {Name, Servers} <- maps:to_list(Backends), Server <- Servers
    ]);
text(Sessions) when is_list(Sessions) ->
    table(?SESSION, Sessions);
text(Number) when is_integer(Number) ->
    [integer_to_list(Number), $\n].

table(Columns, Rows) ->
    Cells = [Columns | [[cell(maps:get(Column, Row, <<>>)) || Column <- Columns] || Row <- Rows]],
    Widths = [
        lists:max([string:length(lists:nth(Place, Line)) || Line <- Cells])
     || Place <- lists:seq(1, length(Columns))
    ],
    [[lists:join("  ", [string:pad(Cell, Width) || {Cell, Width} <- lists:zip(Line, Widths)]), $\n] || Line <- Cells].

cell(Text) when is_binary(Text) -> Text;
cell(Number) when is_integer(Number) -> integer_to_binary(Number).
