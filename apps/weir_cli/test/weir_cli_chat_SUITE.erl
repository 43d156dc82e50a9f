%% `weir demo chat': the program, and its page in Chromium. WEIR_PICTURES=DIRECTORY keeps pictures of the page there.
-module(weir_cli_chat_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_cli_program, [start/2, answer/1, line/1, stop/1, mentions/2]).
-import(weir_compatibility_chromium, [open/3, close/1, evaluate/2, wait_until/2, screenshot/2]).

suite() -> [{timetrap, {minutes, 5}}].

all() -> [help_says_how, two_pages_talk, one_is_cut_off_and_catches_up, robots_chat, a_phone_in_the_dark].

init_per_suite(Config) ->
    case weir_compatibility_chromium:find() of
        {ok, Program} ->
            {ok, Browser} = weir_compatibility_chromium:start(
                Program, filename:join(proplists:get_value(priv_dir, Config), "browser")
            ),
            [{browser, Browser} | weir_cli_program:find(Config)];
        error ->
            {skip, "chromium is missing (scripts/setup test)"}
    end.

end_per_suite(Config) -> weir_compatibility_chromium:stop(proplists:get_value(browser, Config)).

help_says_how(_Config) ->
    {0, Lines} = answer(["demo", "chat", "--help"]),
    [?assert(mentions(Word, Lines)) || Word <- ["weir demo chat", "--robots"]],
    ?assertMatch({2, [<<"weir: ", _/binary>>]}, answer(["demo", "chat", "--robots", "1001"])).

%% Runs a server and pages of it for a fun, and ends them afterwards.
serving(Config, Arguments, Fun) ->
    Program = start(Config, ["demo", "chat" | Arguments]),
    try
        <<"ready ", Port/binary>> = line(Program),
        <<"pid ", _/binary>> = line(Program),
        <<"Open http", _/binary>> = line(Program),
        Fun(["http://127.0.0.1:", Port, "/"])
    after
        ?assertEqual(0, stop(Program))
    end.

page(Config, Url, Look) ->
    Page = open(proplists:get_value(browser, Config), Url, Look),
    ok = wait_until(Page, "document.querySelector('#state').className === 'open'"),
    Page.

says(Page, Text) ->
    _ = evaluate(Page, [
        "document.querySelector('#text').value = '", Text, "'; document.querySelector('#form').requestSubmit()"
    ]).

sees(Page, Text) -> wait_until(Page, ["document.querySelector('#messages').textContent.includes('", Text, "')"]).

picture(Page, Name) ->
    case os:getenv("WEIR_PICTURES") of
        false -> ok;
        Directory -> screenshot(Page, filename:join(Directory, Name))
    end.

two_pages_talk(Config) ->
    serving(Config, [], fun(Url) ->
        [Ann, Bob] = [page(Config, Url, #{}) || _ <- [ann, bob]],
        says(Ann, "Good morning"),
        [sees(Page, "Good morning") || Page <- [Ann, Bob]],
        says(Bob, "<b>Hello</b>"),
        sees(Ann, "<b>Hello</b>"),
        ?assertEqual(1, evaluate(Ann, "document.querySelectorAll('#messages .mine').length")),
        ok = wait_until(Ann, "document.querySelectorAll('#people li').length === 2"),
        %% A message in another room is counted, and shown when the user goes there.
        _ = evaluate(Bob, "document.querySelectorAll('#rooms button')[1].click()"),
        says(Bob, "Is there tea?"),
        ok = wait_until(Ann, "document.querySelectorAll('#rooms b')[1].textContent === '1'"),
        _ = evaluate(Ann, "document.querySelectorAll('#rooms button')[1].click()"),
        sees(Ann, "Is there tea?"),
        %% A later user sees the earlier messages.
        ok = close(Ann),
        Late = page(Config, Url, #{}),
        sees(Late, "Good morning"),
        [close(Page) || Page <- [Bob, Late]]
    end).

one_is_cut_off_and_catches_up(Config) ->
    serving(Config, [], fun(Url) ->
        [Ann, Bob] = [page(Config, Url, #{}) || _ <- [ann, bob]],
        says(Ann, "before"),
        sees(Bob, "before"),
        _ = evaluate(Bob, "document.querySelector('#cut').click()"),
        ok = wait_until(Bob, "document.querySelector('#state').className !== 'open'"),
        [begin says(Ann, Text), sees(Ann, Text) end || Text <- ["first", "second", "third"]],
        ?assertNot(evaluate(Bob, "document.querySelector('#messages').textContent.includes('first')")),
        _ = evaluate(Bob, "document.querySelector('#cut').click()"),
        sees(Bob, "third"),
        sees(Bob, "caught up on 3 messages"),
        Texts = evaluate(Bob, "[...document.querySelectorAll('#messages .text')].map((text) => text.textContent)"),
        ?assertEqual([<<"before">>, <<"first">>, <<"second">>, <<"third">>], Texts),
        picture(Bob, "chat-caught-up.png"),
        [close(Page) || Page <- [Ann, Bob]]
    end).

%% All pages share one dial.
robots_chat(Config) ->
    serving(Config, ["--robots", "50"], fun(Url) ->
        [Ann, Bob] = [page(Config, Url, #{}) || _ <- [ann, bob]],
        ok = wait_until(Bob, "document.querySelector('#dial').value === '50'"),
        ok = wait_until(Ann, "document.querySelector('#people .more').textContent.includes('10 robots')"),
        _ = evaluate(
            Ann,
            "{ const dial = document.querySelector('#dial'); dial.value = 150; "
            "dial.dispatchEvent(new Event('change')) }"
        ),
        ok = wait_until(Bob, "document.querySelector('#dial').value === '150'"),
        ok = wait_until(Bob, "document.querySelector('#people .more').textContent.includes('30 robots')"),
        ok = wait_until(Bob, "document.querySelector('#messages .robot')"),
        ok = wait_until(Bob, "parseFloat(document.querySelector('#p99').textContent) > 0"),
        says(Bob, "So many!"),
        ok = wait_until(Bob, "parseFloat(document.querySelector('#own').textContent) > 0"),
        os:getenv("WEIR_PICTURES") =:= false orelse timer:sleep(15000),
        picture(Bob, "chat.png"),
        _ = evaluate(
            Ann,
            "{ const dial = document.querySelector('#dial'); dial.value = 0; dial.dispatchEvent(new Event('change')) }"
        ),
        ok = wait_until(Bob, "!document.querySelector('#people .more')"),
        [close(Page) || Page <- [Ann, Bob]]
    end).

%% No element is wider than the window, and the form is inside the window.
a_phone_in_the_dark(Config) ->
    serving(Config, ["--robots", "50"], fun(Url) ->
        Phone = page(Config, Url, #{width => 390, height => 844, dark => true}),
        says(Phone, "Good evening"),
        sees(Phone, "Good evening"),
        ?assertEqual(390, evaluate(Phone, "document.documentElement.scrollWidth")),
        ?assert(evaluate(Phone, "document.querySelector('#form').getBoundingClientRect().bottom < innerHeight")),
        ?assert(evaluate(Phone, "document.querySelector('#messages').clientHeight > 200")),
        Paper = "getComputedStyle(document.body).backgroundColor",
        Light = page(Config, Url, #{}),
        ?assertNotEqual(evaluate(Light, Paper), evaluate(Phone, Paper)),
        os:getenv("WEIR_PICTURES") =:= false orelse timer:sleep(8000),
        picture(Phone, "chat-phone-dark.png"),
        [close(Page) || Page <- [Phone, Light]]
    end).
