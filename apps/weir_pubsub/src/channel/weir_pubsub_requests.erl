%% @private
%% @doc Requests of connections that a shard has not answered yet, in a table that outlives the shard. Requests in the
%% mailbox of a shard that is killed are lost with it, and the next one answers them with `unavailable'. So each
%% request has exactly one answer.
%%
%% A request is identified by a number. Numbers grow, so a shard knows which requests may have been sent to an earlier
%% one.
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
%% The process that gets the answer, the first element of it, and the channel.

%% @doc Creates the table of a shard. The caller owns it.
-spec new(atom()) -> ets:tab().
new(Name) -> ets:new(Name, [named_table, public, {write_concurrency, auto}]).

%% @doc Returns the number that a request would have now.
-spec next() -> key().
next() -> erlang:unique_integer([monotonic]).

%% @doc Adds a request of the calling process, before it is sent.
-spec add(ets:tab(), weir_pubsub:channel(), Tag :: term()) -> key().
add(Table, Channel, Tag) ->
    Key = next(),
    true = ets:insert(Table, {Key, {self(), Tag, Channel}}),
    Key.

%% @doc Removes a request that could not be sent. Returns false if a shard that has started since then has answered
%% it.
-spec withdraw(ets:tab(), key()) -> boolean().
withdraw(Table, Key) -> ets:take(Table, Key) =/= [].

%% @doc Whether it is not answered yet.
-spec is_open(ets:tab(), key()) -> boolean().
is_open(Table, Key) -> ets:member(Table, Key).

%% @doc Answers a request. `ask_unless_ok': only an error is sent. `tell': nothing is sent.
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

%% @doc Returns the requests with an earlier number.
-spec before(ets:tab(), key()) -> [request()].
before(Table, Key) -> ets:select(Table, [{{'$1', '_'}, [{'<', '$1', Key}], ['$_']}]).
