%% The claim on a shard's tables: who waits for it, and what happens when its holder is killed.
-module(weir_pubsub_shard_lock_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include("../src/weir_pubsub_shard.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_pubsub_test, [subscribe/2, got/1]).
-import(weir_test_wait, [wait_until/1]).

-include("pubsub_suite.hrl").

suite() -> [{timetrap, {minutes, 3}}].

all() ->
    [
        a_shard_sleeps_while_who_has_the_claim_does_not_run, who_had_the_claim_is_killed,
        who_has_the_claim_is_killed_while_the_shard_sleeps
    ].

%% A reactor is killed in the middle of a publication. Its changes may be incomplete, so the shard starts over.
who_had_the_claim_is_killed(_Config) ->
    {Epoch, 0} = subscribe(<<"a">>, #{}),
    {ok, #shard{claim = Claim}} = weir_pubsub_shards:of_channel(<<"a">>),
    {Holder, Monitor} = spawn_monitor(fun() -> true = weir_pubsub_shard_lock:try_take(Claim) end),
    normal = weir_pubsub_test:ended({Holder, Monitor}),
    {error, unavailable} = weir_pubsub:publish(<<"a">>, "1"),
    ok = begun_again(Epoch).

begun_again(Epoch) ->
    {weir_pubsub, <<"a">>, {gap, unknown, {Later, 0}}} =
        receive
            {weir_pubsub, _, _} = M -> M
        after weir_test_wait:patience() -> none
        end,
    ?assert(Later > Epoch),
    {ok, #{id := {Later, 1}, subscribers := 1}} = weir_pubsub:publish(<<"a">>, "2"),
    ok.

a_shard_sleeps_while_who_has_the_claim_does_not_run(_Config) ->
    {Epoch, 0} = subscribe(<<"a">>, #{}),
    {Holder, Publisher} = asked_while_claimed(),
    Holder ! release,
    {{ok, #{id := {Epoch, 1}}}, Publisher} = published(),
    [{message, {Epoch, 1}, <<"1">>, _}] = got(<<"a">>).

who_has_the_claim_is_killed_while_the_shard_sleeps(_Config) ->
    {Epoch, 0} = subscribe(<<"a">>, #{}),
    {Holder, Publisher} = asked_while_claimed(),
    true = unlink(Holder),
    true = exit(Holder, kill),
    {{error, unavailable}, Publisher} = published(),
    ok = begun_again(Epoch).

asked_while_claimed() ->
    {ok, #shard{claim = Claim}} = weir_pubsub_shards:of_channel(<<"a">>),
    Case = self(),
    Holder = spawn_link(fun() ->
        true = weir_pubsub_shard_lock:try_take(Claim),
        Case ! {claimed, self()},
        receive release -> weir_pubsub_shard_lock:release(Claim) end
    end),
    receive {claimed, Holder} -> ok after weir_test_wait:patience() -> error(not_claimed) end,
    %% A shard that waits for requests is not in the module of the claim.
    Publisher = spawn_link(fun() -> Case ! {published, weir_pubsub:publish(<<"a">>, "1"), self()} end),
    ok = wait_until(fun() ->
        [{status, Status}, {current_stacktrace, Stack}] =
            process_info(whereis(weir_pubsub_test:shard_of(<<"a">>)), [status, current_stacktrace]),
        Status =:= waiting andalso lists:keymember(weir_pubsub_shard_lock, 1, Stack)
    end),
    {Holder, Publisher}.

published() ->
    receive
        {published, Result, Publisher} -> {Result, Publisher}
    after weir_test_wait:patience() -> error(not_published)
    end.
