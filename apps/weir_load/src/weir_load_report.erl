%% @doc A run as one HTML page that holds all it needs, its charts by uPlot.
-module(weir_load_report).

-export([page/1]).

%% @doc The page of a document; an error where the chart library was not there when Weir was built.
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
            {error, "the chart library is not there: build Weir where there is npm, or take --json"}
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

%% No text of the document ends the script element that it stands in.
harmless(Json) ->
    binary:replace(iolist_to_binary(Json), <<"<">>, <<"\\u003c">>, [global]).
