%% @doc The report of a run: one self-contained HTML page with charts by uPlot.
-module(weir_load_report).

-export([page/1]).

%% @doc Returns the page of a document, or an error if the chart library was missing when Weir was built.
-spec page(weir_load_document:document()) -> {ok, iodata()} | {error, iodata()}.
page(Document) ->
    case [read(File) || File <- ["report.html", "uplot.css", "report.css", "uplot.js", "report.js"]] of
        [{ok, Html}, {ok, ChartStyle}, {ok, Style}, {ok, Charts}, {ok, Script}] ->
            {ok,
                fill(Html, [
                    {<<"{{style}}">>, [ChartStyle, "\n", Style]},
                    {<<"{{document}}">>, harmless(weir_json:encode(Document))},
                    {<<"{{script}}">>, [Charts, "\n", Script]}
                ])};
        _ ->
            {error, "the chart library is missing: build Weir on a machine with npm, or use --json"}
    end.

read(File) ->
    file:read_file(filename:join([priv_dir(), "report", File])).

priv_dir() ->
    case code:priv_dir(weir_load) of
        {error, bad_name} -> filename:join(filename:dirname(filename:dirname(code:which(?MODULE))), "priv");
        Directory -> Directory
    end.

fill(Html, []) ->
    [Html];
fill(Html, [{Place, Text} | Places]) ->
    [Before, After] = binary:split(Html, Place),
    [Before, Text | fill(After, Places)].

%% Escapes `<', so that no text in the document can end the script element around it.
harmless(Json) ->
    binary:replace(iolist_to_binary(Json), <<"<">>, <<"\\u003c">>, [global]).
