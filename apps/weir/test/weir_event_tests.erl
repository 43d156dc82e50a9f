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

messages() ->
    receive
        Message -> [Message | messages()]
    after 0 -> []
    end.
