%% @doc A headless Chromium for tests of pages, controlled over a pipe. It ends when the pipe closes: with {@link
%% stop/1}, or with the virtual machine.
-module(weir_compatibility_chromium).

-export([find/0]).
-export([start/2]).
-export([start/3]).
-export([stop/1]).
-export([open/3]).
-export([look/2]).
-export([close/1]).
-export([evaluate/2]).
-export([wait_until/2]).
-export([screenshot/2]).
-export([errors/1]).

-export_type([browser/0, page/0, look/0]).

-opaque browser() :: pid().
-opaque page() :: {browser(), target(), Session :: binary()}.
-type target() :: Target :: binary() | {apart, Target :: binary(), Context :: binary()}.

-type look() :: #{width => pos_integer(), height => pos_integer(), dark => boolean(), apart => boolean()}.
%% `apart' (default: false): the page has its own cache and connections, which end with it.

%% Milliseconds that an answer may take on a busy machine.
-define(PATIENCE, 60000).

-record(state, {
    port :: port(),
    %% The callers that wait for answers, by request number.
    asked = #{} :: #{pos_integer() => {pid(), reference()}},
    next = 1 :: pos_integer(),
    %% The received part of a message.
    read = [] :: iodata(),
    %% Errors of pages that were not read yet, the last first.
    errors = [] :: [{Session :: binary(), map()}]
}).

%% @doc Finds the program.
-spec find() -> {ok, file:filename()} | error.
find() ->
    case
        [
            Found
         || Name <- ["chromium", "chromium-browser", "google-chrome"],
            Found <- [os:find_executable(Name)],
            Found =/= false
        ]
    of
        [First | _] -> {ok, First};
        [] -> error
    end.

%% @doc Starts a browser that stores its data in this directory.
-spec start(file:filename(), Directory :: file:filename()) -> {ok, browser()}.
start(Program, Directory) -> start(Program, Directory, []).

%% @doc The same with further arguments.
-spec start(file:filename(), Directory :: file:filename(), [string()]) -> {ok, browser()}.
start(Program, Directory, More) ->
    Arguments = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--no-first-run",
        "--hide-scrollbars",
        "--disable-background-timer-throttling",
        "--disable-backgrounding-occluded-windows",
        "--disable-renderer-backgrounding",
        "--remote-debugging-pipe",
        "--user-data-dir=" ++ Directory
        | More
    ],
    {ok,
        spawn(fun() ->
            %% Without a desktop it prints warnings.
            Quiet = ["-c", "exec \"$0\" \"$@\" 2>/dev/null", Program | Arguments],
            Port = open_port({spawn_executable, "/bin/sh"}, [{args, Quiet}, nouse_stdio, binary, exit_status]),
            loop(#state{port = Port})
        end)}.

%% @doc Stops the browser and waits until it has ended.
-spec stop(browser()) -> ok.
stop(Browser) ->
    Monitor = monitor(process, Browser),
    Browser ! stop,
    receive {'DOWN', Monitor, process, Browser, _} -> ok end.

loop(State = #state{port = Port, asked = Asked, next = Next, read = Read, errors = Errors}) ->
    receive
        {ask, Pid, Reference, Question} ->
            true = port_command(Port, [weir_json:compact(Question#{id => Next}), 0]),
            loop(State#state{asked = Asked#{Next => {Pid, Reference}}, next = Next + 1});
        {errors, Pid, Reference, Session} ->
            Pid ! {Reference, lists:reverse([What || {Of, What} <- Errors, Of =:= Session])},
            loop(State#state{errors = [Error || {Of, _} = Error <- Errors, Of =/= Session]});
        {Port, {data, Data}} ->
            case binary:split(Data, <<0>>) of
                [_] ->
                    loop(State#state{read = [Read, Data]});
                [End, Rest] ->
                    self() ! {Port, {data, Rest}},
                    {ok, Message} = weir_json:decode(iolist_to_binary([Read, End])),
                    loop(told(Message, State#state{read = []}))
            end;
        {Port, {exit_status, _}} ->
            ok;
        stop ->
            {os_pid, Pid} = erlang:port_info(Port, os_pid),
            port_command(Port, [weir_json:compact(#{id => Next, method => <<"Browser.close">>}), 0]),
            receive {Port, {exit_status, _}} -> ok after 5000 -> _ = os:cmd("kill -9 " ++ integer_to_list(Pid)), ok end
    end.

told(#{<<"id">> := Id} = Answer, State = #state{asked = Asked}) when is_map_key(Id, Asked) ->
    {{Pid, Reference}, Left} = maps:take(Id, Asked),
    Pid ! {Reference, Answer},
    State#state{asked = Left};
told(#{<<"method">> := Method, <<"params">> := What, <<"sessionId">> := Session}, State = #state{errors = Errors}) ->
    case error_of(Method, What) of
        {ok, Error} -> State#state{errors = [{Session, Error} | Errors]};
        none -> State
    end;
told(_Event, State) ->
    State.

error_of(<<"Runtime.exceptionThrown">>, What) -> {ok, What};
error_of(<<"Runtime.consoleAPICalled">>, #{<<"type">> := <<"error">>} = What) -> {ok, What};
error_of(<<"Log.entryAdded">>, #{<<"entry">> := #{<<"level">> := <<"error">>} = What}) -> {ok, What};
error_of(_Method, _What) -> none.

ask(Browser, Method, Parameters, Session) ->
    Reference = monitor(process, Browser),
    Browser ! {ask, self(), Reference, Session#{method => Method, params => Parameters}},
    receive
        {Reference, #{<<"result">> := Result}} -> demonitor(Reference, [flush]), Result;
        {Reference, #{<<"error">> := Error}} -> error({chromium, Method, Error});
        {'DOWN', Reference, _, _, Reason} -> error({chromium, Method, Reason})
    after ?PATIENCE -> error({chromium, Method, timeout})
    end.

in({Browser, _Target, Session}, Method, Parameters) -> ask(Browser, Method, Parameters, #{sessionId => Session}).

%% @doc Opens a page in a new window.
-spec open(browser(), Url :: iodata(), look()) -> page().
open(Browser, Url, Look) ->
    Context = context(Browser, Look),
    #{<<"targetId">> := Id} = ask(
        Browser, <<"Target.createTarget">>, Context#{url => <<"about:blank">>, newWindow => true}, #{}
    ),
    #{<<"sessionId">> := Session} = ask(Browser, <<"Target.attachToTarget">>, #{targetId => Id, flatten => true}, #{}),
    Target =
        case Context of
            #{browserContextId := Own} -> {apart, Id, Own};
            #{} -> Id
        end,
    Page = {Browser, Target, Session},
    _ = [in(Page, Domain, #{}) || Domain <- [<<"Runtime.enable">>, <<"Log.enable">>]],
    ok = look(Page, Look),
    _ = in(Page, <<"Page.navigate">>, #{url => iolist_to_binary(Url)}),
    Page.

context(Browser, #{apart := true}) ->
    #{<<"browserContextId">> := Context} = ask(Browser, <<"Target.createBrowserContext">>, #{}, #{}),
    #{browserContextId => Context};
context(_Browser, #{}) ->
    #{}.

%% @doc Changes the size of a page, and whether it is dark.
-spec look(page(), look()) -> ok.
look(Page, Look) ->
    Width = maps:get(width, Look, 1200),
    _ = in(Page, <<"Emulation.setDeviceMetricsOverride">>, #{
        width => Width, height => maps:get(height, Look, 800), deviceScaleFactor => 1, mobile => Width < 600
    }),
    Scheme =
        case Look of
            #{dark := true} -> <<"dark">>;
            #{} -> <<"light">>
        end,
    _ = in(Page, <<"Emulation.setEmulatedMedia">>, #{
        features => [#{name => <<"prefers-color-scheme">>, value => Scheme}]
    }),
    ok.

-spec close(page()) -> ok.
close({Browser, {apart, _Target, Context}, _Session}) ->
    _ = ask(Browser, <<"Target.disposeBrowserContext">>, #{browserContextId => Context}, #{}),
    ok;
close({Browser, Target, _Session}) ->
    _ = ask(Browser, <<"Target.closeTarget">>, #{targetId => Target}, #{}),
    ok.

%% @doc Returns the value of an expression; of a promise, its result.
-spec evaluate(page(), Script :: iodata()) -> weir_json:value().
evaluate(Page, Script) ->
    Parameters = #{
        expression => iolist_to_binary(Script), awaitPromise => true, returnByValue => true, userGesture => true
    },
    case in(Page, <<"Runtime.evaluate">>, Parameters) of
        #{<<"exceptionDetails">> := Exception} -> error({script, Exception});
        #{<<"result">> := Result} -> maps:get(<<"value">>, Result, null)
    end.

%% @doc Waits until an expression is true. An exception counts as false.
-spec wait_until(page(), Script :: iodata()) -> ok.
wait_until(Page, Script) -> wait_until(Page, Script, erlang:monotonic_time(millisecond) + ?PATIENCE).

wait_until(Page, Script, Until) ->
    %% The page may change between two tries.
    case evaluate(Page, ["(() => { try { return Boolean(", Script, "); } catch { return false; } })()"]) of
        true -> ok;
        false ->
            erlang:monotonic_time(millisecond) < Until orelse error({never, iolist_to_binary(Script)}),
            timer:sleep(50),
            wait_until(Page, Script, Until)
    end.

%% @doc Writes a PNG screenshot of the window.
-spec screenshot(page(), file:filename()) -> ok.
screenshot(Page, File) ->
    #{<<"data">> := Data} = in(Page, <<"Page.captureScreenshot">>, #{format => <<"png">>}),
    ok = filelib:ensure_dir(File),
    file:write_file(File, base64:decode(Data)).

%% @doc Returns the exceptions of a page's scripts and the errors in its console since the last call.
-spec errors(page()) -> [map()].
errors({Browser, _Target, Session} = Page) ->
    %% Errors arrive before this answer.
    _ = evaluate(Page, "1"),
    Reference = monitor(process, Browser),
    Browser ! {errors, self(), Reference, Session},
    receive
        {Reference, Errors} -> demonitor(Reference, [flush]), Errors;
        {'DOWN', Reference, _, _, Reason} -> error({chromium, errors, Reason})
    end.
