-module(weir_event_tests).

-include_lib("eunit/include/eunit.hrl").

-export([tell/4]).

tell(Event, Measurements, Metadata, Pid) -> Pid ! {Event, Measurements, Metadata}.

events_test_() ->
    {foreach, fun() -> ok end, fun(_) -> [weir_event:detach(Id) || #{id := Id} <- weir_event:list_handlers([])] end, [
        fun handlers_are_called/0,
        fun a_handler_is_attached_once/0,
        fun handlers_are_listed_by_prefix/0,
        fun a_handler_that_raises_is_detached/0
    ]}.

handlers_are_called() ->
    ?assertNot(weir_event:is_attached([a, b])),
    ok = weir_event:attach_many(one, [[a, b], [a, c]], {?MODULE, tell}, self()),
    ok = weir_event:attach(two, [a, b], fun ?MODULE:tell/4, self()),
    ?assert(weir_event:is_attached([a, b])),
    ?assert(weir_event:is_any_attached([[a], [a, c]])),
    ?assertNot(weir_event:is_any_attached([[a], [b]])),
    ok = weir_event:execute([a, b], #{count => 1}, #{x => y}),
    ok = weir_event:execute([a, c], #{}, #{}),
    ok = weir_event:execute([a], #{}, #{}),
    Expected = {[a, b], #{count => 1}, #{x => y}},
    ?assertEqual([Expected, Expected, {[a, c], #{}, #{}}], messages()),
    ok = weir_event:detach(one),
    ok = weir_event:execute([a, c], #{}, #{}),
    ?assertEqual([], messages()).

a_handler_is_attached_once() ->
    ok = weir_event:attach(one, [a], {?MODULE, tell}, self()),
    ?assertEqual({error, already_exists}, weir_event:attach(one, [b], {?MODULE, tell}, self())),
    ok = weir_event:detach(one),
    ?assertEqual({error, not_found}, weir_event:detach(one)),
    ?assertError(badarg, weir_event:attach(one, a, {?MODULE, tell}, self())),
    ?assertError(badarg, weir_event:attach(one, [a], fun() -> ok end, self())).

handlers_are_listed_by_prefix() ->
    ok = weir_event:attach(one, [a, b], fun ?MODULE:tell/4, x),
    Listed = [#{id => one, event_name => [a, b], function => fun ?MODULE:tell/4, config => x}],
    ?assertEqual(Listed, weir_event:list_handlers([a])),
    ?assertEqual([], weir_event:list_handlers([b])).

a_handler_that_raises_is_detached() ->
    ok = weir_event:attach(bad, [a], fun(_, _, _, _) -> error(oops) end, x),
    ok = weir_event:attach(good, [a], {?MODULE, tell}, self()),
    ok = logger:add_primary_filter(?MODULE, {fun(_, _) -> stop end, []}),
    ok = weir_event:execute([a], #{}, #{}),
    ok = logger:remove_primary_filter(?MODULE),
    ?assertMatch([#{id := good}], weir_event:list_handlers([a])),
    ?assertMatch([{[a], _, _}], messages()).

%% If the library `telemetry' is present. It is not a dependency of Weir: a stand-in has its functions.

telemetry_test_() ->
    {foreach, fun load_telemetry/0, fun(_) -> unload_telemetry() end, [
        fun its_handlers_get_the_events/0,
        fun it_says_what_is_attached/0,
        fun ours_are_back_without_it/0,
        fun a_library_that_is_not_started_is_not_used/0,
        fun handlers_from_before_its_start_go_on/0
    ]}.

its_handlers_get_the_events() ->
    %% A handler that the application attaches to telemetry itself.
    ok = (telemetry()):attach_many(theirs, [[a, b]], fun ?MODULE:tell/4, self()),
    ok = weir_event:attach(one, [a, b], {?MODULE, tell}, self()),
    ?assert(weir_event:is_attached([nobody, listens])),
    ?assert(weir_event:is_any_attached([[nobody, listens]])),
    ok = weir_event:execute([a, b], #{count => 1}, #{x => y}),
    ok = weir_event:execute([nobody, listens], #{}, #{}),
    Expected = {[a, b], #{count => 1}, #{x => y}},
    ?assertEqual([Expected, Expected], messages()),
    ok = weir_event:detach(one),
    ok = weir_event:detach(theirs),
    ok = weir_event:execute([a, b], #{count => 2}, #{}),
    ?assertEqual([], messages()).

it_says_what_is_attached() ->
    ok = weir_event:attach_many(one, [[a, b], [a, c]], {?MODULE, tell}, x),
    ?assertEqual({error, already_exists}, weir_event:attach(one, [d], {?MODULE, tell}, x)),
    ?assertError(badarg, weir_event:attach(two, [a], fun() -> ok end, x)),
    Listed = [#{id => one, event_name => [a, What], function => fun ?MODULE:tell/4, config => x} || What <- [b, c]],
    ?assertEqual(Listed, weir_event:list_handlers([a])),
    ?assertEqual((telemetry()):list_handlers([]), weir_event:list_handlers([])),
    ok = weir_event:detach(one),
    ?assertEqual({error, not_found}, weir_event:detach(one)),
    ?assertEqual([], weir_event:list_handlers([])).

ours_are_back_without_it() ->
    unload_telemetry(),
    ?assertNot(weir_event:is_attached([a])),
    ok = weir_event:attach(one, [a], {?MODULE, tell}, self()),
    ok = weir_event:execute([a], #{}, #{}),
    ?assertEqual([{[a], #{}, #{}}], messages()),
    ok = weir_event:detach(one).

%% Without its application, its functions only log warnings.
a_library_that_is_not_started_is_not_used() ->
    stop_telemetry(),
    ok = weir_event:attach(one, [a], {?MODULE, tell}, self()),
    ?assertEqual([], (telemetry()):list_handlers([])),
    ok = weir_event:execute([a], #{}, #{}),
    ?assertEqual([{[a], #{}, #{}}], messages()),
    ok = weir_event:detach(one).

handlers_from_before_its_start_go_on() ->
    stop_telemetry(),
    ok = weir_event:attach(before, [a], {?MODULE, tell}, self()),
    start_telemetry(),
    ok = weir_event:attach(later, [a], {?MODULE, tell}, self()),
    ?assertEqual({error, already_exists}, weir_event:attach(before, [b], {?MODULE, tell}, self())),
    ok = weir_event:execute([a], #{}, #{}),
    ?assertEqual([{[a], #{}, #{}}, {[a], #{}, #{}}], messages()),
    ?assertEqual([before, later], [Id || #{id := Id} <- weir_event:list_handlers([a])]),
    [ok = weir_event:detach(Id) || Id <- [before, later]],
    ok = weir_event:execute([a], #{}, #{}),
    ?assertEqual([], messages()).

start_telemetry() -> true = register(telemetry_sup, spawn(fun() -> receive stop -> ok end end)).

stop_telemetry() ->
    case whereis(telemetry_sup) of
        undefined ->
            ok;
        Pid ->
            Monitor = monitor(process, Pid),
            Pid ! stop,
            receive {'DOWN', Monitor, process, Pid, _} -> ok end
    end.

%% Hides the module's name from the compiler, which does not know it.
telemetry() -> telemetry.

load_telemetry() ->
    Source =
        "-module(telemetry).\n"
        "-export([attach_many/4, detach/1, list_handlers/1, execute/3]).\n"
        "attach_many(Id, Events, Function, Config) when is_function(Function, 4) ->"
        "    case lists:any(fun(#{id := Taken}) -> Taken =:= Id end, all()) of"
        "        true -> {error, already_exists};"
        "        false -> put_all(all() ++ [#{id => Id, event_name => Event, function => Function, config => Config}"
        "            || Event <- Events])"
        "    end.\n"
        "detach(Id) ->"
        "    case lists:partition(fun(#{id := Of}) -> Of =:= Id end, all()) of"
        "        {[], _} -> {error, not_found};"
        "        {_, Others} -> put_all(Others)"
        "    end.\n"
        "list_handlers(Prefix) ->"
        " [Handler || Handler = #{event_name := Event} <- all(), lists:prefix(Prefix, Event)].\n"
        "execute(Event, Measurements, Metadata) when is_map(Measurements), is_map(Metadata) ->"
        "    lists:foreach(fun(#{function := Function, config := Config}) ->"
        "        Function(Event, Measurements, Metadata, Config)"
        "    end, [Handler || Handler = #{event_name := Of} <- all(), Of =:= Event]).\n"
        "all() -> persistent_term:get(telemetry, []).\n"
        "put_all(Handlers) -> persistent_term:put(telemetry, Handlers).",
    {ok, Tokens, _} = erl_scan:string(Source),
    {ok, telemetry, Binary} = compile:forms(forms(Tokens, []), []),
    {module, telemetry} = code:load_binary(telemetry, "telemetry", Binary),
    start_telemetry().

%% A form ends with its dot.
forms([], []) ->
    [];
forms([Dot = {dot, _} | Tokens], Form) ->
    {ok, Parsed} = erl_parse:parse_form(lists:reverse(Form, [Dot])),
    [Parsed | forms(Tokens, [])];
forms([Token | Tokens], Form) ->
    forms(Tokens, [Token | Form]).

unload_telemetry() ->
    stop_telemetry(),
    _ = code:delete(telemetry),
    _ = code:purge(telemetry),
    _ = persistent_term:erase(telemetry),
    ok.

messages() ->
    receive
        Message -> [Message | messages()]
    after 0 -> []
    end.
