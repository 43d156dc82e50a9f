%% Chromium without a window, told what to do over a pipe (its DevTools protocol). It ends when the process that has started it ends, in
%% whatever way: then its input does.
-module(weir_scope_browser).

-export([find/0, start/1, open/2, size/3, dark/2, evaluate/2, until/2, picture/2, errors/1, stop/1]).

-record(browser, {port, session}).

-define(PATIENCE, 45000).

find() ->
    case [Path || Name <- ["chromium", "chromium-browser", "google-chrome"], Path <- [os:find_executable(Name)], Path =/= false] of
        [Path | _] -> {ok, Path};
        [] -> error
    end.

%% Its pipe is descriptors 3 and 4; what it says beside goes nowhere.
start(Directory) ->
    {ok, Program} = find(),
    Arguments = ["--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", "--user-data-dir=" ++ Directory, "about:blank"],
    Port = open_port({spawn_executable, "/bin/sh"}, [
        {args, ["-c", "exec \"$@\" 3<&0 4>&1 </dev/null >/dev/null 2>&1", "sh", Program | Arguments]}, binary, exit_status
    ]),
    Browser = #browser{port = Port},
    #{<<"targetId">> := Target} = command(Browser, 'Target.createTarget', #{url => <<"about:blank">>}),
    #{<<"sessionId">> := Session} = command(Browser, 'Target.attachToTarget', #{targetId => Target, flatten => true}),
    Attached = Browser#browser{session = Session},
    _ = [command(Attached, Domain, #{}) || Domain <- ['Page.enable', 'Runtime.enable', 'Log.enable']],
    Attached.

open(Browser, Url) ->
    _ = command(Browser, 'Page.navigate', #{url => iolist_to_binary(Url)}),
    ok.

size(Browser, Width, Height) ->
    _ = command(Browser, 'Emulation.setDeviceMetricsOverride', #{width => Width, height => Height, deviceScaleFactor => 1, mobile => false}),
    ok.

dark(Browser, Is) ->
    Scheme = case Is of true -> dark; false -> light end,
    _ = command(Browser, 'Emulation.setEmulatedMedia', #{features => [#{name => <<"prefers-color-scheme">>, value => Scheme}]}),
    ok.

%% The value of an expression, or of its promise.
evaluate(Browser, Expression) ->
    case command(Browser, 'Runtime.evaluate', #{expression => iolist_to_binary(Expression), returnByValue => true, awaitPromise => true}) of
        #{<<"exceptionDetails">> := Details} -> error({raised, Expression, Details});
        #{<<"result">> := Result} -> maps:get(<<"value">>, Result, undefined)
    end.

until(Browser, Expression) -> until(Browser, Expression, erlang:monotonic_time(millisecond) + ?PATIENCE).

until(Browser, Expression, End) ->
    case evaluate(Browser, Expression) of
        true -> ok;
        Other ->
            erlang:monotonic_time(millisecond) < End orelse error({never_true, Expression, Other, evaluate(Browser, "document.body?.innerText")}),
            timer:sleep(100),
            until(Browser, Expression, End)
    end.

picture(Browser, File) ->
    #{<<"data">> := Data} = command(Browser, 'Page.captureScreenshot', #{format => png}),
    ok = filelib:ensure_dir(File),
    ok = file:write_file(File, base64:decode(Data)).

%% What scripts have raised, and what the console was told as an error, since the last time.
errors(Browser) ->
    _ = evaluate(Browser, "1"),
    case get(?MODULE) of
        undefined -> [];
        Errors -> erase(?MODULE), lists:reverse(Errors)
    end.

stop(#browser{port = Port}) ->
    catch port_close(Port),
    ok.

command(#browser{port = Port, session = Session}, Method, Parameters) ->
    Id = erlang:unique_integer([positive]),
    Message = #{id => Id, method => Method, params => Parameters},
    Whole = case Session of undefined -> Message; _ -> Message#{sessionId => Session} end,
    true = port_command(Port, [weir_json:compact(Whole), 0]),
    answer(Port, Id, Method, take_rest()).

take_rest() ->
    case erase(weir_scope_browser_rest) of
        undefined -> <<>>;
        Rest -> Rest
    end.

answer(Port, Id, Method, Bytes) ->
    case binary:split(Bytes, <<0>>) of
        [Text, Rest] ->
            {ok, Message} = weir_json:decode(Text),
            case Message of
                #{<<"id">> := Id, <<"result">> := Result} -> put(weir_scope_browser_rest, Rest), Result;
                #{<<"id">> := Id, <<"error">> := Error} -> error({Method, Error});
                _ -> heard(Message), answer(Port, Id, Method, Rest)
            end;
        [Part] ->
            receive
                {Port, {data, Data}} -> answer(Port, Id, Method, <<Part/binary, Data/binary>>);
                {Port, {exit_status, Status}} -> error({browser_ended, Status})
            after ?PATIENCE -> error({no_answer, Method})
            end
    end.

heard(#{<<"method">> := <<"Runtime.exceptionThrown">>, <<"params">> := What}) -> keep(What);
heard(#{<<"method">> := <<"Runtime.consoleAPICalled">>, <<"params">> := #{<<"type">> := <<"error">>} = What}) -> keep(What);
heard(#{<<"method">> := <<"Log.entryAdded">>, <<"params">> := #{<<"entry">> := #{<<"level">> := <<"error">>} = What}}) -> keep(What);
heard(_) -> ok.

keep(What) ->
    put(?MODULE, [What | case get(?MODULE) of undefined -> []; Before -> Before end]).
