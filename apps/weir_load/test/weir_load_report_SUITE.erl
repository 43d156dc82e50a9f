%% The report in a browser.
-module(weir_load_report_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").
-include_lib("weir_testing/include/weir_test.hrl").

-export([all/0, suite/0, init_per_suite/1, end_per_suite/1]).
-export([
    charts_are_drawn/1,
    a_node_that_was_observed_is_drawn/1,
    charts_are_drawn_on_a_dark_page/1,
    many_schedulers_are_summed_up/1,
    what_was_pushed_is_drawn/1,
    no_text_ends_the_script/1
]).

suite() ->
    [{timetrap, {minutes, 5}}].

all() ->
    [
        charts_are_drawn,
        a_node_that_was_observed_is_drawn,
        charts_are_drawn_on_a_dark_page,
        many_schedulers_are_summed_up,
        what_was_pushed_is_drawn,
        no_text_ends_the_script
    ].

init_per_suite(Config) ->
    case {weir_compatibility_chromium:find(), page(#{})} of
        {error, _} ->
            {skip, "no Chromium here"};
        {_, {error, _}} ->
            {skip, "built without npm"};
        {{ok, Program}, {ok, _}} ->
            {ok, Browser} = weir_compatibility_chromium:start(
                Program, filename:join(?config(priv_dir, Config), "browser")
            ),
            [{browser, Browser} | Config]
    end.

end_per_suite(Config) -> weir_compatibility_chromium:stop(?config(browser, Config)).

charts_are_drawn(Config) ->
    Drawn = show(Config, "report", #{}),
    ?assertEqual(
        [
            <<"Response time over time">>,
            <<"Offered and achieved, per second">>,
            <<"Latency spectrum to 99.999 %">>,
            <<"Errors, per second">>,
            <<"Server: CPU and memory">>
        ],
        titles(Drawn)
    ),
    all_are_coloured(Drawn).

a_node_that_was_observed_is_drawn(Config) ->
    Drawn = show(Config, "node", #{schedulers => 2}),
    ?assertEqual(
        [
            <<"Server: CPU and memory">>,
            <<"Server: scheduler utilization">>,
            <<"Server: events of pollsets, per second">>,
            <<"Server: polls, per second">>
        ],
        lists:nthtail(4, titles(Drawn))
    ),
    [#{<<"legend">> := Legend}] = [Chart || #{<<"title">> := <<"Server: scheduler", _/binary>>} = Chart <- Drawn],
    ?assertEqual([<<"second">>, <<"scheduler 1">>, <<"scheduler 2">>], Legend),
    all_are_coloured(Drawn).

many_schedulers_are_summed_up(Config) ->
    Drawn = show(Config, "schedulers", #{schedulers => 64}),
    [
        ?assertEqual([<<"second">>, <<"mean">>, <<"most">>], Legend)
     || #{<<"title">> := Title, <<"legend">> := Legend} <- Drawn,
        lists:member(Title, [<<"Server: scheduler utilization">>, <<"Server: events of pollsets, per second">>])
    ],
    all_are_coloured(Drawn).

charts_are_drawn_on_a_dark_page(Config) ->
    all_are_coloured(show(Config, "dark", #{schedulers => 2}, #{dark => true})).

titles(Drawn) -> [Title || #{<<"title">> := Title} <- Drawn].

all_are_coloured(Drawn) ->
    [?assert(Coloured > 100, Title) || #{<<"title">> := Title, <<"coloured">> := Coloured} <- Drawn].

what_was_pushed_is_drawn(Config) ->
    [#{<<"title">> := <<"Delay of messages over time">>} | _] = Drawn = show(Config, "pushed", #{measure => push}),
    all_are_coloured(Drawn).

no_text_ends_the_script(Config) ->
    [_ | _] = show(Config, "hostile", #{target => <<"</script><script>throw 1</script>">>}).

%% Shows a page with a script that inspects the charts, and keeps a screenshot. Returns the charts.
show(Config, Name, Changes) -> show(Config, Name, Changes, #{}).

show(Config, Name, Changes, Look) ->
    {ok, Text} = page(Changes),
    File = filename:join(?config(priv_dir, Config), Name ++ ".html"),
    Picture = filename:join(?config(priv_dir, Config), Name ++ ".png"),
    ok = file:write_file(File, Text),
    Page = weir_compatibility_chromium:open(?config(browser, Config), ["file://", File], Look#{
        width => 1250, height => 2000
    }),
    Drawn = ?waitMatch([_ | _], drawn(weir_compatibility_chromium:evaluate(Page, looking()))),
    ok = weir_compatibility_chromium:screenshot(Page, Picture),
    ?assertEqual([], weir_compatibility_chromium:errors(Page)),
    ok = weir_compatibility_chromium:close(Page),
    Drawn.

%% The charts, or `not_drawn' while one has at most 100 coloured pixels.
drawn(Charts) ->
    case [Title || #{<<"title">> := Title, <<"coloured">> := Coloured} <- Charts, Coloured =< 100] of
        [] -> Charts;
        Empty -> {not_drawn, Empty}
    end.

%% Pixels of a series are not grey.
looking() ->
    "document.readyState !== 'complete' ? [] : ("
    "  [...document.querySelectorAll('figure')].map((figure) => {"
    "    const canvas = figure.querySelector('canvas');"
    "    const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);"
    "    let coloured = 0;"
    "    for (let i = 0; i < data.length; i += 4) {"
    "      const rgb = [data[i], data[i + 1], data[i + 2]];"
    "      if (data[i + 3] > 0 && Math.max(...rgb) - Math.min(...rgb) > 60) coloured++;"
    "    }"
    "    const legend = [...figure.querySelectorAll('.u-label')].map((label) => label.textContent);"
    "    return { title: figure.querySelector('h2').textContent, coloured, legend };"
    "  }))".

%% Three seconds of made-up times.
page(Changes) ->
    Measure = maps:get(measure, Changes, response),
    Outcome = #{
        total => measured(Measure, 1, 3000),
        seconds => [
            weir_load_second:new(
                Second, offered(Measure), observed(Second, Changes),
                measured(Measure, Second + 1, 1000)
            )
         || Second <- [0, 1, 2]
        ],
        offered =>
            case Measure of
                response -> 3000;
                push -> none
            end,
        window => 3_000_000_000,
        elapsed => 3_000_000_000,
        interrupted => false
    },
    About = #{
        scenario => <<"echo">>, target => maps:get(target, Changes, <<"127.0.0.1:7000">>), loop => open,
        rate => <<"1000">>, arrivals => even, seed => null, concurrency => null, connections => 50, depth => 1,
        tls => false, observe => 'server@localhost', nodes => [node()], duration_ns => 3_000_000_000, warmup_ns => 0,
        timeout_ns => 5_000_000_000,
        max_lag_ns => 10_000_000, started => <<"2026-01-01T00:00:00Z">>, promises => []
    },
    weir_load_report:page(weir_load_document:new(About, [Outcome])).

observed(Second, #{schedulers := Count}) ->
    Pollset = #{polls => 900 + Second, empty_polls => 400, events => 600 * (Second + 1), sleeps => 300, sockets => 50},
    (observed(Second, #{}))#{
        schedulers => [Number / (Count + Second) || Number <- lists:seq(1, Count)],
        pollsets => [Pollset#{pollset => Number} || Number <- lists:seq(1, Count)]
    };
observed(Second, _Changes) ->
    #{cpu => 0.1 * Second, rss_bytes => 40_000_000 + Second * 1_000_000}.

offered(response) -> 1000;
offered(push) -> none.

measured(Measure, Factor, Count) ->
    Times = fun(N, Sample) -> count(Measure, N * Factor * 1000, weir_load_sample:time(lag, 20_000, Sample)) end,
    Sample = lists:foldl(Times, weir_load_sample:error(reset, weir_load_sample:new()), lists:seq(1, Count)),
    weir_load_sample:merge(weir_load_sample:pack(Sample), weir_load_sample:empty()).

count(response, Time, Sample) -> weir_load_sample:answered(Time, Time, Time, Sample);
count(push, Time, Sample) -> weir_load_sample:add(pushed, 1, weir_load_sample:time(push, Time, Sample)).
