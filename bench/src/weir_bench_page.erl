%% @doc Renders results as one self-contained HTML page: bars for every scenario, and lines for ramps. The lines need
%% uPlot, which is only included if it was available when Weir was built.
-module(weir_bench_page).

-export([html/1]).
-export([write/1]).

%% @doc Returns the page of a document.
-spec html(weir_bench_results:document()) -> unicode:chardata().
html(#{<<"machine">> := #{<<"otp">> := Otp}, <<"scenarios">> := Scenarios} = Document) ->
    Chapters = [
        {Title, Of}
     || #{<<"name">> := Name, <<"title">> := Title} <- map_get(<<"chapters">>, Document),
        [_ | _] = Of <- [[Scenario || #{<<"chapter">> := In} = Scenario <- Scenarios, In =:= Name]]
    ],
    {ChartStyle, ChartScript} = charts(),
    fill(part("page.html"), [
        {<<"{{title}}">>, ["Weir, measured on OTP ", Otp]},
        {<<"{{style}}">>, [ChartStyle, "\n", part("page.css")]},
        {<<"{{title}}">>, ["Weir, measured on OTP ", Otp]},
        {<<"{{machine}}">>, machine(Document)},
        {<<"{{contents}}">>, [contents(Title, Of) || {Title, Of} <- Chapters]},
        {<<"{{chapters}}">>, [chapter(Title, Of) || {Title, Of} <- Chapters]},
        {<<"{{targets}}">>, targets(Document)},
        {<<"{{ramps}}">>, ramps(Scenarios)},
        {<<"{{script}}">>, [ChartScript, "\n", part("page.js")]}
    ]).

%% @doc Writes the page of each results file beside it. An error is one line, which names the file.
-spec write([file:filename(), ...]) -> {ok, [Written :: file:filename()]} | {error, iodata()}.
write(Files) ->
    lists:foldl(
        fun
            (File, {ok, Written}) ->
                case write_one(File) of
                    {ok, Page} -> {ok, Written ++ [Page]};
                    {error, _} = Error -> Error
                end;
            (_File, Error) ->
                Error
        end,
        {ok, []},
        Files
    ).

write_one(File) ->
    Page = filename:rootname(File) ++ ".html",
    case weir_bench_results:read(File) of
        {ok, Document} ->
            case weir_bench_tree:replace(Page, unicode:characters_to_binary(html(Document))) of
                ok -> {ok, Page};
                {error, Reason} -> {error, ["cannot write ", Page, ": ", file:format_error(Reason)]}
            end;
        {error, _} = Error ->
            Error
    end.

part(Name) ->
    {ok, Part} = file:read_file(filename:join(weir_bench_tree:page(), Name)),
    Part.

charts() ->
    {Style, Script} = weir_bench_tree:charts(),
    case {file:read_file(Style), file:read_file(Script)} of
        {{ok, Css}, {ok, Js}} -> {Css, Js};
        _ -> {"", ""}
    end.

fill(Html, []) ->
    [Html];
fill(Html, [{Place, Text} | Places]) ->
    [Before, After] = binary:split(Html, Place),
    [Before, Text | fill(After, Places)].

machine(Document) ->
    [
        "<table class=\"machine\">",
        [
            ["<tr><td>", Name, "</td><td>", escape(Value), "</td></tr>"]
         || {Name, Value} <- weir_bench_report:machine(Document)
        ],
        "</table>"
    ].

contents(Title, Scenarios) ->
    [
        "<div><b>", escape(Title), "</b>",
        [["<a href=\"#", Name, "\">", Name, "</a>"] || #{<<"name">> := Name} <- Scenarios],
        "</div>\n"
    ].

chapter(Title, Scenarios) ->
    ["<h2>", escape(Title), "</h2>\n", [scenario(Scenario) || Scenario <- Scenarios]].

scenario(#{<<"name">> := Name, <<"title">> := Title} = Scenario) ->
    [
        "<section id=\"", Name, "\"><h3>", escape(Title), "</h3>\n",
        "<code>", weir_bench_report:command(Scenario), "</code>\n",
        case weir_bench_chart:svg(Scenario) of
            {ok, Svg} -> ["<figure>", Svg, "</figure>\n"];
            none -> "<p>Nothing was measured.</p>\n"
        end,
        case lines_of(Scenario) of
            [] -> "";
            _ -> ["<figure class=\"ramp\" data-scenario=\"", Name, "\"></figure>\n"]
        end,
        "<details><summary>In figures</summary>", table(weir_bench_report:table(Scenario)), "</details>\n",
        case weir_bench_report:notes(Scenario) of
            [] -> "";
            Notes -> ["<p class=\"notes\">", lists:join("<br>", [escape(Note) || Note <- Notes]), "</p>\n"]
        end,
        "</section>\n"
    ].

table({Header, Rows}) ->
    [
        "<div class=\"tables\"><table><tr>",
        [["<th>", escape(Cell), "</th>"] || Cell <- Header],
        "</tr>",
        [["<tr>", [["<td>", escape(Cell), "</td>"] || Cell <- Row], "</tr>\n"] || Row <- Rows],
        "</table></div>"
    ].

targets(Document) ->
    case weir_bench_report:targets(Document) of
        {_, []} ->
            "";
        {Header, Rows} ->
            Html = unicode:characters_to_binary(table({Header, Rows})),
            %% Missed targets are bold in Markdown and coloured here.
            ["<h2>Targets</h2>", binary:replace(Html, <<"**no**">>, <<"<span class=\"missed\">no</span>">>, [global])]
    end.

%% A line for each contestant, by scenario.
ramps(Scenarios) ->
    Json = weir_json:encode(
        maps:from_list([
            {Name, Lines} || #{<<"name">> := Name} = Scenario <- Scenarios, [_ | _] = Lines <- [lines_of(Scenario)]
        ])
    ),
    %% Escapes `<', so that no text can close the script element.
    binary:replace(iolist_to_binary(Json), <<"<">>, <<"\\u003c">>, [global]).

lines_of(#{<<"contestants">> := Contestants}) ->
    [
        #{title => Title, seconds => Seconds}
     || #{<<"title">> := Title, <<"seconds">> := [_ | _] = Seconds} <- Contestants
    ].

escape(Text) ->
    lists:foldl(
        fun({Character, Entity}, Escaped) -> binary:replace(Escaped, Character, Entity, [global]) end,
        unicode:characters_to_binary(Text),
        [{<<"&">>, <<"&amp;">>}, {<<"<">>, <<"&lt;">>}, {<<">">>, <<"&gt;">>}]
    ).
