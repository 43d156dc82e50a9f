%% @doc The styles that all charts share, and escaping of text in SVG.
-module(weir_bench_svg).

-export([style/0]).
-export([escape/1]).

%% @doc Returns the styles of charts. No other element of the page may use these class names: charts share its style
%% sheet.
-spec style() -> string().
style() ->
    ".bars{font:13px system-ui,\"Segoe UI\",\"DejaVu Sans\",sans-serif;max-width:100%;height:auto}"
    ".bars text{fill:#1d2733}.bars .unit{fill:#5d6b7a}.bars .label{text-anchor:end}"
    ".bars .weir{fill:#2563eb}.bars .inet{fill:#d97706}.bars .socket{fill:#e0a94a}"
    ".bars .peer{fill:#8a97a6}.bars .native{fill:#4b5866}"
    ".bars .whisker{stroke:#1d2733;stroke-width:1.2;fill:none}.bars .curve{stroke-width:2;fill:none}"
    ".bars .axis{stroke:#c3ccd6;stroke-width:1;fill:none}.bars .middle{text-anchor:middle}"
    "@media (prefers-color-scheme:dark){.bars text{fill:#e2e8f0}.bars .unit{fill:#9aa7b5}"
    ".bars .weir{fill:#5b8df5}.bars .inet{fill:#e08a2e}.bars .socket{fill:#c9963c}"
    ".bars .peer{fill:#7c8997}.bars .native{fill:#aab6c3}.bars .whisker{stroke:#e2e8f0}}".

%% @doc Escapes a text for SVG.
-spec escape(unicode:chardata()) -> unicode:chardata().
escape(Text) ->
    lists:foldl(
        fun({Character, Entity}, Escaped) -> binary:replace(Escaped, Character, Entity, [global]) end,
        Text,
        [{<<"&">>, <<"&amp;">>}, {<<"<">>, <<"&lt;">>}, {<<">">>, <<"&gt;">>}]
    ).
