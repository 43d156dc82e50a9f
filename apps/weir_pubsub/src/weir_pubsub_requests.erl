%% @private
%% @doc What connections have asked a shard that it has not answered yet, in a table that outlives the shard. What waits in the mailbox of
%% a shard that is killed is lost with it: the next one answers that `unavailable'. So each request has one answer.
%%
%% A request is known by a number. Numbers grow, so a shard knows which requests may have been sent to an earlier one.
-module(weir_pubsub_requests).

-export([new/1]).
-export([next/0]).
-export([add/3]).
-export([withdraw/2]).
-export([is_open/2]).
-export([answer/3]).
-export([before/2]).

-export_type([key/0, request/0]).

-type key() :: integer().

-type request() :: {key(), {pid(), Tag :: term(), weir_pubsub:channel()}}.
%% Who gets the answer, and what it begins with.

%% @doc The table of a shard, owned by the caller.
-spec new(atom()) -> ets:tab().
new(Name) -> ets:new(Name, [named_table, public, {write_concurrency, auto}]).

%% @doc The number of a request that would be made now.
-spec next() -> key().
next() -> erlang:unique_integer([monotonic]).

%% @doc Adds a request of the calling process, before it is sent.
-spec add(ets:tab(), weir_pubsub:channel(), Tag :: term()) -> key().
add(Table, Channel, Tag) ->
    Key = next(),
    true = ets:insert(Table, {Key, {self(), Tag, Channel}}),
    Key.

%% @doc It could not be sent. False if a shard that has begun meanwhile has answered it.
-spec withdraw(ets:tab(), key()) -> boolean().
withdraw(Table, Key) -> ets:take(Table, Key) =/= [].

%% @doc Whether nobody has answered it.
-spec is_open(ets:tab(), key()) -> boolean().
is_open(Table, Key) -> ets:member(Table, Key).

%% @doc Answers it. `ask_unless_ok': who has asked is told only of errors. `tell': of nothing.
-spec answer(ets:tab(), {ask | ask_unless_ok | tell, key()}, term()) -> ok.
answer(Table, {How, Key}, Answer) ->
    [{Key, {Pid, Tag, Channel}}] = ets:take(Table, Key),
    _ =
        case {How, Answer} of
            {ask_unless_ok, {ok, _}} -> ok;
            {tell, _} -> ok;
            _ -> Pid ! weir_pubsub_subscribers:message(Tag, Channel, {answer, Answer})
        end,
    ok.

%% @doc Those with an earlier number.
-spec before(ets:tab(), key()) -> [request()].
before(Table, Key) -> ets:select(Table, [{{'$1', '_'}, [{'<', '$1', Key}], ['$_']}]).
