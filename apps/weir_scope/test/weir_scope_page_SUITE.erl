%% The page of a node in a browser.
-module(weir_scope_page_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").

-export([all/0, suite/0, init_per_suite/1, end_per_suite/1, init_per_testcase/2, end_per_testcase/2]).
-export([every_tab_draws/1, a_range_is_that_of_all_charts/1, latency_is_a_map_of_heat/1, a_recording_draws/1, it_comes_back_after_a_restart/1, it_asks_for_a_token/1]).

-import(weir_scope_served, [start/1, replay/1, stop/1, recording/1]).

-include("served_suite.hrl").

-define(TOKEN, (weir_scope_served:token())).

%% A browser starts slowly where others use the machine.
suite() -> [{timetrap, {minutes, 4}}].

all() -> [every_tab_draws, a_range_is_that_of_all_charts, latency_is_a_map_of_heat, a_recording_draws, it_comes_back_after_a_restart, it_asks_for_a_token].

init_per_suite(Config) ->
    Charts = filename:join([code:priv_dir(weir_scope), "page", "uplot.js"]),
    case {weir_scope_browser:find(), filelib:is_file(Charts)} of
        {error, _} -> {skip, "no Chromium here"};
        {_, false} -> {skip, "built without npm"};
        _ -> weir_scope_served:with([weir_http, weir_scope], Config)
    end.

browse(Config, Case, Path) ->
    Browser = weir_scope_browser:start(filename:join(?config(priv_dir, Config), atom_to_list(Case))),
    weir_scope_browser:size(Browser, 1250, 1000),
    weir_scope_browser:open(Browser, url(Path)),
    Browser.

url(Path) -> ["http://127.0.0.1:", integer_to_list(weir_scope_web:port()), Path, "#token=", uri_string:quote(?TOKEN)].

%% Pixels that are not grey are those of a line.
drawn() ->
    "(() => { const all = [...document.querySelectorAll('figure canvas')];"
    " return all.length > 0 && all.some((canvas) => {"
    "  const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height); let coloured = 0;"
    "  for (let i = 0; i < data.length; i += 4)"
    "   if (data[i + 3] > 0 && Math.max(data[i], data[i + 1], data[i + 2]) - Math.min(data[i], data[i + 1], data[i + 2]) > 60) coloured++;"
    "  return coloured > 50; }); })()".

%% Those that the documents show go there, when that is asked for.
keep(Browser, Config, Name) ->
    Directory =
        case os:getenv("WEIR_WRITE_RESULTS") of
            "1" when Name =:= "schedulers"; Name =:= "memory"; Name =:= "processes" -> filename:join(root(code:which(?MODULE)), "docs/images");
            _ -> ?config(priv_dir, Config)
        end,
    File = filename:join(Directory, "scope_" ++ Name ++ ".png"),
    weir_scope_browser:picture(Browser, File),
    ?assert(filelib:file_size(File) > 10_000).

root(Path) ->
    case filelib:is_file(filename:join(Path, "docs/internals.md")) of
        true -> Path;
        false -> root(filename:dirname(Path))
    end.

every_tab_draws(Config) ->
    Pid = start(#{}),
    Browser = browse(Config, ?FUNCTION_NAME, "/"),
    weir_scope_browser:until(Browser, "document.querySelectorAll('#tabs a').length > 7"),
    ?assertEqual(<<>>, weir_scope_browser:evaluate(Browser, "location.hash")),
    Charts = [<<"overview">>, <<"schedulers">>, <<"memory">>, <<"processes">>, <<"sockets">>, <<"polls">>, <<"latency">>, <<"threads">>, <<"weir">>],
    [
        begin
            weir_scope_browser:evaluate(Browser, ["[...document.querySelectorAll('#tabs a')].find((a) => a.textContent === '", Tab, "').click()"]),
            weir_scope_browser:until(Browser, ["document.title.endsWith(': ", Tab, "') && document.querySelector('#blocks').innerText.length > 20"]),
            _ = [weir_scope_browser:until(Browser, drawn()) || lists:member(Tab, Charts)],
            %% What the page has watched itself.
            _ = [weir_scope_browser:until(Browser, "[...document.querySelectorAll('h2')].some((title) => title.textContent.startsWith('Schedulers, while'))") || Tab =:= <<"threads">>],
            keep(Browser, Config, binary_to_list(Tab))
        end
     || {Name, _} <- weir_scope_tabs:all(), Tab <- [atom_to_binary(Name)]
    ],
    weir_scope_browser:evaluate(Browser, "[...document.querySelectorAll('#tabs a')].find((a) => a.textContent === 'overview').click()"),
    a_dark_page(Browser, Config),
    what_is_downloaded(Browser),
    ?assertEqual([], weir_scope_browser:errors(Browser)),
    weir_scope_browser:stop(Browser),
    stop(Pid).

%% The pointer is drawn over one chart: all others show that time.
a_range_is_that_of_all_charts(Config) ->
    Pid = start(#{}),
    Browser = browse(Config, ?FUNCTION_NAME, "/?tab=overview"),
    weir_scope_browser:until(Browser, drawn()),
    weir_scope_browser:evaluate(Browser, "(() => { const over = document.querySelector('figure .u-over'); const { left, top, width } = over.getBoundingClientRect();"
        " const at = (type, part) => over.dispatchEvent(new MouseEvent(type, { bubbles: true, button: 0, clientX: left + part * width, clientY: top + 20,"
        " movementX: 1, view: window })); at('mouseenter', 0.2); at('mousemove', 0.2); at('mousedown', 0.2); at('mousemove', 0.5); at('mousemove', 0.6);"
        " document.dispatchEvent(new MouseEvent('mouseup', { bubbles: true, button: 0, clientX: left + 0.6 * width, clientY: top + 20, view: window })); })()"),
    weir_scope_browser:until(Browser, "new URLSearchParams(location.search).has('from') && !document.querySelector('#live').hidden"),
    ?assertEqual(true, weir_scope_browser:evaluate(Browser, "(() => { const given = new URLSearchParams(location.search); return +given.get('to') > +given.get('from'); })()")),
    %% Back by the browser's own button.
    weir_scope_browser:evaluate(Browser, "history.back()"),
    weir_scope_browser:until(Browser, "!new URLSearchParams(location.search).has('from') && document.querySelector('#live').hidden"),
    the_address_tells_what_is_shown(Browser),
    ?assertEqual([], weir_scope_browser:errors(Browser)),
    weir_scope_browser:stop(Browser),
    stop(Pid).

%% Replies of about 2 and of about 40 milliseconds: the chart has steps far apart, and both are painted.
latency_is_a_map_of_heat(Config) ->
    Pid = start(#{}),
    Reply = fun(Socket, _) -> answers(Socket) end,
    {ok, _} = weir:start_listener(?MODULE, #{ip => loopback, measure => true}, Reply, none),
    {ok, Client} = gen_tcp:connect({127, 0, 0, 1}, weir:get_port(?MODULE), [binary, {active, false}]),
    Browser = browse(Config, ?FUNCTION_NAME, "/?tab=latency"),
    weir_scope_browser:until(Browser, drawn()),
    ?assertEqual(false, weir_scope_browser:evaluate(Browser, heat())),
    _ = [begin ok = gen_tcp:send(Client, <<Milliseconds>>), {ok, <<Milliseconds>>} = gen_tcp:recv(Client, 1) end || _ <- lists:seq(1, 20), Milliseconds <- [2, 40]],
    weir_scope_browser:until(Browser, heat()),
    keep(Browser, Config, "heat"),
    ?assertEqual([], weir_scope_browser:errors(Browser)),
    weir_scope_browser:stop(Browser),
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
    "(() => { const figure = [...document.querySelectorAll('figure')].find((one) => one.querySelector('h2').textContent.startsWith('Replies by'));"
    " const canvas = figure?.querySelector('canvas'); if (!canvas) return false;"
    " const half = (top) => { const { data } = canvas.getContext('2d').getImageData(0, top, canvas.width, canvas.height / 2); let coloured = 0;"
    "  for (let i = 0; i < data.length; i += 4) if (data[i + 3] > 0 && data[i + 2] - data[i] > 40) coloured++; return coloured; };"
    " return half(0) > 5 && half(canvas.height / 2) > 5; })()".

the_address_tells_what_is_shown(Browser) ->
    Now = erlang:system_time(millisecond),
    weir_scope_browser:open(Browser, url(["/?tab=schedulers&grain=minute&sort=cpu&from=", integer_to_list(Now - 60000), "&to=", integer_to_list(Now)])),
    weir_scope_browser:until(Browser, "document.querySelector('th[aria-sort]')?.textContent === 'CPU'"),
    ?assertEqual(<<"schedulers">>, weir_scope_browser:evaluate(Browser, "document.querySelector('#tabs a[aria-current]').textContent")),
    ?assertEqual(<<"1 day">>, weir_scope_browser:evaluate(Browser, "document.querySelector('#grains button[aria-pressed=true]').textContent")),
    ?assertEqual(false, weir_scope_browser:evaluate(Browser, "document.querySelector('#live').hidden")).

it_comes_back_after_a_restart(Config) ->
    Pid = start(#{}),
    Port = weir_scope_web:port(),
    Browser = browse(Config, ?FUNCTION_NAME, "/"),
    weir_scope_browser:until(Browser, drawn()),
    stop(Pid),
    weir_scope_browser:until(Browser, "document.querySelector('#state').className === 'bad'"),
    Again = start(#{port => Port}),
    weir_scope_browser:until(Browser, "document.querySelector('#state').className === '' && document.querySelector('#state').textContent === ''"),
    weir_scope_browser:until(Browser, drawn()),
    %% The browser says itself what could not be reached; no script has failed.
    ?assertEqual([], [Error || Error <- weir_scope_browser:errors(Browser), maps:get(<<"source">>, Error, none) =/= <<"network">>]),
    weir_scope_browser:stop(Browser),
    stop(Again).

a_recording_draws(Config) ->
    Pid = replay(recording(Config)),
    Browser = browse(Config, ?FUNCTION_NAME, "/?tab=memory"),
    weir_scope_browser:until(Browser, drawn()),
    weir_scope_browser:until(Browser, "document.querySelector('#blocks').innerText.includes('eheap_alloc')"),
    ?assertEqual([], weir_scope_browser:errors(Browser)),
    weir_scope_browser:stop(Browser),
    stop(Pid).

it_asks_for_a_token(Config) ->
    Pid = start(#{}),
    Browser = weir_scope_browser:start(filename:join(?config(priv_dir, Config), "asks")),
    weir_scope_browser:open(Browser, ["http://127.0.0.1:", integer_to_list(weir_scope_web:port()), "/"]),
    weir_scope_browser:until(Browser, "document.querySelector('#ask')?.hidden === false"),
    weir_scope_browser:evaluate(Browser, ["document.querySelector('#token').value = '", ?TOKEN, "'; document.querySelector('#ask').requestSubmit()"]),
    weir_scope_browser:until(Browser, "document.querySelector('#ask').hidden && document.querySelectorAll('#tabs a').length > 7"),
    weir_scope_browser:stop(Browser),
    stop(Pid).

a_dark_page(Browser, Config) ->
    weir_scope_browser:dark(Browser, true),
    weir_scope_browser:until(Browser, "getComputedStyle(document.body).backgroundColor === 'rgb(18, 23, 29)'"),
    weir_scope_browser:until(Browser, drawn()),
    keep(Browser, Config, "dark").

what_is_downloaded(Browser) ->
    weir_scope_browser:evaluate(Browser, "globalThis.kept = null; URL.createObjectURL = (blob) => { blob.text().then((text) => { kept = text; }); return '#'; };"
        " document.querySelector('#download').click()"),
    weir_scope_browser:until(Browser, "kept !== null"),
    {ok, #{<<"at">> := At, <<"columns">> := #{<<"vm.run_queue">> := Queue}, <<"node">> := Node}} = weir_json:decode(weir_scope_browser:evaluate(Browser, "kept")),
    ?assertEqual(atom_to_binary(node()), Node),
    ?assert(length(At) > 1 andalso length(At) =:= length(Queue)).
