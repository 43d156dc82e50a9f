%% @doc Renders a file in Chromium: returns what a script of the page has written as JSON into its element `seen', and
%% writes a screenshot.
-module(weir_compatibility_drawing).

-export([of_file/4]).
-export([of_page/4]).

%% @doc Renders a page with further arguments of Chromium, and fails if the page's script failed. The screenshot is a
%% PNG.
-spec of_file(
    Program :: file:filename(), Page :: file:filename(), Picture :: file:filename(), Arguments :: [string()]
) ->
    weir_json:value().
of_file(Program, Page, Picture, Arguments) ->
    Common = ["--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr" | Arguments],
    Url = "file://" ++ Page,
    _ = run(Program, Common ++ ["--screenshot=" ++ Picture, Url]),
    true = filelib:file_size(Picture) > 10_000,
    Output = run(Program, Common ++ ["--virtual-time-budget=5000", "--dump-dom", Url]),
    nomatch = re:run(Output, ":CONSOLE.*rror", [{capture, first, binary}]),
    {match, [Seen]} = re:run(Output, "<pre id=\"seen\">(.*?)</pre>", [{capture, all_but_first, binary}, dotall]),
    {ok, Drawn} = weir_json:decode(Seen),
    Drawn.

%% @doc The same in a running browser.
-spec of_page(Browser, Page :: file:filename(), Picture :: file:filename(), Look) -> weir_json:value() when
    Browser :: weir_compatibility_chromium:browser(),
    Look :: weir_compatibility_chromium:look().
of_page(Browser, File, Picture, Look) ->
    Page = weir_compatibility_chromium:open(Browser, ["file://", File], Look),
    ok = weir_compatibility_chromium:wait_until(Page, "document.getElementById('seen')"),
    {ok, Drawn} = weir_json:decode(
        weir_compatibility_chromium:evaluate(Page, "document.getElementById('seen').textContent")
    ),
    ok = weir_compatibility_chromium:screenshot(Page, Picture),
    true = filelib:file_size(Picture) > 10_000,
    [] = weir_compatibility_chromium:errors(Page),
    ok = weir_compatibility_chromium:close(Page),
    Drawn.

%% The program gets a signal when this emulator ends.
run(Program, Arguments) ->
    {Executable, All} =
        case os:find_executable("setpriv") of
            false -> {Program, Arguments};
            Setpriv -> {Setpriv, ["--pdeathsig", "KILL", Program | Arguments]}
        end,
    Port = open_port({spawn_executable, Executable}, [{args, All}, exit_status, stderr_to_stdout, binary, hide]),
    output(Port, <<>>).

output(Port, Output) ->
    receive
        {Port, {data, Data}} -> output(Port, <<Output/binary, Data/binary>>);
        {Port, {exit_status, 0}} -> Output;
        {Port, {exit_status, Status}} -> error({chromium, Status, Output})
    end.
