%% The page of a node in a browser.
-module(weir_scope_page_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").

-export([all/0, suite/0, init_per_suite/1, end_per_suite/1, init_per_testcase/2, end_per_testcase/2]).
-export([
    every_tab_draws/1,
    a_range_is_that_of_all_charts/1,
    latency_is_a_map_of_heat/1,
    a_recording_draws/1,
    it_comes_back_after_a_restart/1,
    it_asks_for_a_token/1
]).

-import(weir_scope_served, [start/1, replay/1, stop/1, recording/1]).
-import(weir_compatibility_chromium, [open/3, look/2, close/1, evaluate/2, wait_until/2, screenshot/2, errors/1]).

-define(LOOK, #{width => 1250, height => 1000}).
-define(TOKEN, (weir_scope_served:token())).

%% A browser starts slowly on a busy machine.
suite() -> [{timetrap, {minutes, 5}}].

all() ->
    [
        every_tab_draws,
        a_range_is_that_of_all_charts,
        latency_is_a_map_of_heat,
        a_recording_draws,
        it_comes_back_after_a_restart,
        it_asks_for_a_token
    ].

init_per_suite(Config) ->
    Charts = filename:join([code:priv_dir(weir_scope), "page", "uplot.js"]),
    case {weir_compatibility_chromium:find(), filelib:is_file(Charts)} of
        {error, _} ->
            {skip, "no Chromium here"};
        {_, false} ->
            {skip, "built without npm"};
        {{ok, Program}, true} ->
            {ok, Browser} = weir_compatibility_chromium:start(
                Program, filename:join(?config(priv_dir, Config), "browser")
            ),
            weir_scope_served:with([weir_http, weir_scope], [{browser, Browser} | Config])
    end.

end_per_suite(Config) ->
    ok = weir_compatibility_chromium:stop(?config(browser, Config)),
    weir_scope_served:without(Config).

init_per_testcase(_Case, Config) ->
    _ = process_flag(trap_exit, true),
    Config.

%% All that a case has started is linked to it.
end_per_testcase(_Case, _Config) -> ok.

%% Closes a page, which must have no errors.
done(Page) ->
    ?assertEqual([], errors(Page)),
    close(Page).

browse(Config, Path) -> open(?config(browser, Config), url(Path), ?LOOK).

url(Path) -> ["http://127.0.0.1:", integer_to_list(weir_scope_web:port()), Path, "#token=", uri_string:quote(?TOKEN)].

%% Pixels that are not grey belong to a line.
drawn() ->
    "(() => { const all = [...document.querySelectorAll('figure canvas')];"
    " return all.length > 0 && all.some((canvas) => {"
    "  const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height); let coloured = 0;"
    "  for (let i = 0; i < data.length; i += 4)"
    "   if (data[i + 3] > 0 && Math.max(data[i], data[i + 1], data[i + 2]) - Math.min(data[i], data[i + 1], data[i + "
    "2]) > 60) coloured++;  return coloured > 50; }); })()".

%% Keeps a picture. With WEIR_WRITE_RESULTS=1 those of the documents are written to docs/images.
keep(Page, Config, Name) ->
    Directory =
        case os:getenv("WEIR_WRITE_RESULTS") of
            "1" when Name =:= "schedulers"; Name =:= "memory"; Name =:= "processes" ->
                filename:join(root(code:which(?MODULE)), "docs/images");
            _ ->
                ?config(priv_dir, Config)
        end,
    File = filename:join(Directory, "scope_" ++ Name ++ ".png"),
    screenshot(Page, File),
    ?assert(filelib:file_size(File) > 10_000).

root(Path) ->
    case filelib:is_file(filename:join(Path, "docs/internals.md")) of
        true -> Path;
        false -> root(filename:dirname(Path))
    end.

every_tab_draws(Config) ->
    Pid = start(#{}),
    Page = browse(Config, "/"),
    wait_until(Page, "document.querySelectorAll('#tabs a').length > 7"),
    ?assertEqual(<<>>, evaluate(Page, "location.hash")),
    Charts = [
        <<"overview">>,
        <<"schedulers">>,
        <<"memory">>,
        <<"processes">>,
        <<"sockets">>,
        <<"polls">>,
        <<"latency">>,
        <<"threads">>,
        <<"weir">>
    ],
    [
        begin
            evaluate(Page, [
                "[...document.querySelectorAll('#tabs a')].find((a) => a.textContent === '", Tab, "').click()"
            ]),
            wait_until(Page, [
                "document.title.endsWith(': ", Tab, "') && document.querySelector('#blocks').innerText.length > 20"
            ]),
            _ = [wait_until(Page, drawn()) || lists:member(Tab, Charts)],
            %% The chart of data that only the page has measured.
            _ = [
                wait_until(
                    Page,
                    "[...document.querySelectorAll('h2')].some((title) => title.textContent.startsWith('Schedulers, "
                    "while'))"
                )
             || Tab =:= <<"threads">>
            ],
            keep(Page, Config, binary_to_list(Tab))
        end
     || {Name, _} <- weir_scope_tabs:all(), Tab <- [atom_to_binary(Name)]
    ],
    evaluate(Page, "[...document.querySelectorAll('#tabs a')].find((a) => a.textContent === 'overview').click()"),
    a_dark_page(Page, Config),
    what_is_downloaded(Page),
    done(Page),
    stop(Pid).

%% A range is selected with the pointer in one chart, and all charts show it.
a_range_is_that_of_all_charts(Config) ->
    Pid = start(#{}),
    Page = browse(Config, "/?tab=overview"),
    wait_until(Page, drawn()),
    evaluate(
        Page,
        "(() => { const over = document.querySelector('figure .u-over'); "
        "const { left, top, width } = over.getBoundingClientRect(); "
        "const at = (type, part) => over.dispatchEvent(new MouseEvent(type, { bubbles: true, button: 0, clientX: left "
        "+ part * width, clientY: top + 20, movementX: 1, view: window })); at('mouseenter', 0.2); "
        "at('mousemove', 0.2); at('mousedown', 0.2); at('mousemove', 0.5); at('mousemove', 0.6); "
        "document.dispatchEvent(new MouseEvent('mouseup', { bubbles: true, button: 0, clientX: left + 0.6 * width, "
        "clientY: top + 20, view: window })); })()"
    ),
    wait_until(Page, "new URLSearchParams(location.search).has('from') && !document.querySelector('#live').hidden"),
    ?assertEqual(
        true,
        evaluate(
            Page,
            "(() => { const given = new URLSearchParams(location.search); "
            "return +given.get('to') > +given.get('from'); })()"
        )
    ),
    %% As with the browser's back button.
    evaluate(Page, "history.back()"),
    wait_until(Page, "!new URLSearchParams(location.search).has('from') && document.querySelector('#live').hidden"),
    the_address_tells_what_is_shown(Config),
    done(Page),
    stop(Pid).

%% Replies of about 2 and of about 40 milliseconds: the chart has steps far apart, and both are painted.
latency_is_a_map_of_heat(Config) ->
    Pid = start(#{}),
    Reply = fun(Socket, _) -> answers(Socket) end,
    {ok, _} = weir:start_listener(?MODULE, #{ip => loopback, measure => true}, Reply, none),
    {ok, Client} = gen_tcp:connect({127, 0, 0, 1}, weir:get_port(?MODULE), [binary, {active, false}]),
    Page = browse(Config, "/?tab=latency"),
    wait_until(Page, drawn()),
    ?assertEqual(false, evaluate(Page, heat())),
    _ = [
        begin
            ok = gen_tcp:send(Client, <<Milliseconds>>),
            {ok, <<Milliseconds>>} = gen_tcp:recv(Client, 1)
        end
     || _ <- lists:seq(1, 20), Milliseconds <- [2, 40]
    ],
    wait_until(Page, heat()),
    keep(Page, Config, "heat"),
    done(Page),
    ok = gen_tcp:close(Client),
    ok = weir:stop_listener(?MODULE),
    stop(Pid).

answers(Socket) ->
    case gen_tcp:recv(Socket, 1) of
        {ok, <<Milliseconds>> = Asked} ->
            timer:sleep(Milliseconds),
            ok = gen_tcp:send(Socket, Asked),
            answers(Socket);
        {error, closed} ->
            ok
    end.

%% Whether the upper and the lower half of the chart both have coloured cells.
heat() ->
    "(() => { const figure = [...document.querySelectorAll('figure')].find((one) => "
    "one.querySelector('h2').textContent.startsWith('Replies by')); const canvas = figure?.querySelector('canvas'); "
    "if (!canvas) return false; const half = (top) => { const { data } = canvas.getContext('2d').getImageData(0, top, "
    "canvas.width, canvas.height / 2); let coloured = 0;  for (let i = 0; i < data.length; "
    "i += 4) if (data[i + 3] > 0 && data[i + 2] - data[i] > 40) coloured++; return coloured; }; "
    "return half(0) > 5 && half(canvas.height / 2) > 5; })()".

the_address_tells_what_is_shown(Config) ->
    Now = erlang:system_time(millisecond),
    Page = open(
        ?config(browser, Config),
        url([
            "/?tab=schedulers&grain=minute&sort=cpu&from=", integer_to_list(Now - 60000), "&to=", integer_to_list(Now)
        ]),
        ?LOOK
    ),
    wait_until(Page, "document.querySelector('th[aria-sort]')?.textContent === 'CPU'"),
    ?assertEqual(<<"schedulers">>, evaluate(Page, "document.querySelector('#tabs a[aria-current]').textContent")),
    ?assertEqual(
        <<"1 day">>, evaluate(Page, "document.querySelector('#grains button[aria-pressed=true]').textContent")
    ),
    ?assertEqual(false, evaluate(Page, "document.querySelector('#live').hidden")),
    done(Page).

it_comes_back_after_a_restart(Config) ->
    Pid = start(#{}),
    Port = weir_scope_web:port(),
    Page = browse(Config, "/"),
    wait_until(Page, drawn()),
    stop(Pid),
    wait_until(Page, "document.querySelector('#state').className === 'bad'"),
    Again = start(#{port => Port}),
    wait_until(
        Page, "document.querySelector('#state').className === '' && document.querySelector('#state').textContent === ''"
    ),
    wait_until(Page, drawn()),
    %% The only errors are the browser's own network errors; no script has failed.
    ?assertEqual([], [Error || Error <- errors(Page), maps:get(<<"source">>, Error, none) =/= <<"network">>]),
    close(Page),
    stop(Again).

a_recording_draws(Config) ->
    Pid = replay(recording(Config)),
    Page = browse(Config, "/?tab=memory"),
    wait_until(Page, drawn()),
    wait_until(Page, "document.querySelector('#blocks').innerText.includes('eheap_alloc')"),
    done(Page),
    stop(Pid).

it_asks_for_a_token(Config) ->
    Pid = start(#{}),
    Page = open(?config(browser, Config), ["http://127.0.0.1:", integer_to_list(weir_scope_web:port()), "/"], ?LOOK),
    wait_until(Page, "document.querySelector('#ask')?.hidden === false"),
    evaluate(Page, [
        "document.querySelector('#token').value = '", ?TOKEN, "'; document.querySelector('#ask').requestSubmit()"
    ]),
    wait_until(Page, "document.querySelector('#ask').hidden && document.querySelectorAll('#tabs a').length > 7"),
    close(Page),
    stop(Pid).

a_dark_page(Page, Config) ->
    look(Page, ?LOOK#{dark => true}),
    wait_until(Page, "getComputedStyle(document.body).backgroundColor === 'rgb(18, 23, 29)'"),
    wait_until(Page, drawn()),
    keep(Page, Config, "dark").

what_is_downloaded(Page) ->
    evaluate(
        Page,
        "globalThis.kept = null; URL.createObjectURL = (blob) => { blob.text().then((text) => { kept = text; }); "
        "return '#'; }; document.querySelector('#download').click()"
    ),
    wait_until(Page, "kept !== null"),
    {ok, #{<<"at">> := At, <<"columns">> := #{<<"vm.run_queue">> := Queue}, <<"node">> := Node}} = weir_json:decode(
        evaluate(Page, "kept")
    ),
    ?assertEqual(atom_to_binary(node()), Node),
    ?assert(length(At) > 1 andalso length(At) =:= length(Queue)).
