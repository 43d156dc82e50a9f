%% The page of results in a browser.
-module(weir_bench_page_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").

-export([all/0, suite/0, init_per_suite/1, end_per_suite/1]).
-export([bars_and_lines_are_drawn/1, it_can_be_read_in_the_dark/1]).

suite() ->
    [{timetrap, {minutes, 3}}].

all() ->
    [bars_and_lines_are_drawn, it_can_be_read_in_the_dark].

init_per_suite(Config) ->
    case weir_compatibility_chromium:find() of
        error ->
            {skip, "no Chromium here"};
        {ok, Program} ->
            {ok, Browser} = weir_compatibility_chromium:start(
                Program, filename:join(?config(priv_dir, Config), "browser")
            ),
            [{browser, Browser} | Config]
    end.

end_per_suite(Config) -> weir_compatibility_chromium:stop(?config(browser, Config)).

bars_and_lines_are_drawn(Config) ->
    #{<<"bars">> := Bars, <<"whiskers">> := Whiskers, <<"lines">> := Lines, <<"sections">> := Sections} = show(
        Config, "light", false
    ),
    ?assertEqual([<<"echo-100">>, <<"fast-connect">>], Sections),
    %% Two contestants each; the others have no figures.
    ?assertEqual(4, length(Bars)),
    ?assertEqual(4, Whiskers),
    [Inet, Weir | _] = Bars,
    ?assert(abs(Weir / Inet - 2.4) < 0.1),
    {_, Charts} = weir_bench_tree:charts(),
    case filelib:is_regular(Charts) of
        true -> ?assertMatch([Coloured] when Coloured > 100, Lines);
        false -> ?assertEqual([], Lines)
    end.

it_can_be_read_in_the_dark(Config) ->
    #{<<"ink">> := Ink, <<"paper">> := Paper} = show(Config, "dark", true),
    ?assertNotEqual(Ink, Paper),
    #{<<"ink">> := LightInk, <<"paper">> := LightPaper} = show(Config, "light", false),
    ?assertNotEqual({LightInk, LightPaper}, {Ink, Paper}).

%% Renders a page, runs a script that inspects the drawing, and keeps a screenshot.
show(Config, Name, Dark) ->
    Page = weir_bench_page:html(weir_bench_results:document(weir_bench_record:record())),
    File = filename:join(?config(priv_dir, Config), Name ++ ".html"),
    Picture = filename:join(?config(priv_dir, Config), Name ++ ".png"),
    ok = file:write_file(File, [unicode:characters_to_binary(Page), looking()]),
    weir_compatibility_drawing:of_page(?config(browser, Config), File, Picture, #{
        width => 1100, height => 1500, dark => Dark
    }).

%% Pixels that are not grey belong to a series.
looking() ->
    "<script>addEventListener('load', () => setTimeout(() => {"
    "  const lines = [...document.querySelectorAll('.ramp canvas')].map((canvas) => {"
    "    const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);"
    "    let coloured = 0;"
    "    for (let i = 0; i < data.length; i += 4) {"
    "      const rgb = [data[i], data[i + 1], data[i + 2]];"
    "      if (data[i + 3] > 0 && Math.max(...rgb) - Math.min(...rgb) > 60) coloured++;"
    "    }"
    "    return coloured;"
    "  });"
    "  const style = getComputedStyle(document.body);"
    "  const pre = document.createElement('pre');"
    "  pre.id = 'seen';"
    "  pre.textContent = JSON.stringify({"
    "    lines,"
    "    sections: [...document.querySelectorAll('section')].map((section) => section.id),"
    "    bars: [...document.querySelectorAll('svg rect')].map((bar) => bar.getBoundingClientRect().width),"
    "    whiskers: document.querySelectorAll('svg .whisker').length,"
    "    ink: style.color, paper: style.backgroundColor"
    "  });"
    "  document.body.appendChild(pre);"
    "}, 100));</script>".
