%% @doc Scenario `fast_connect': connections at a growing rate, each with one request of 26 bytes and one reply. It is
%% the scenario of the measurements of ranch against gen_tcp, with their ramp: every second 44.4 connections per second
%% more.
-module(weir_load_fast_connect).
-behaviour(weir_load_scenario).

-export([describe/0]).
-export([reply_option/0]).
-export([init/1]).
-export([connect/2]).
-export([request/2]).
-export([response/2]).
-export([done/1]).

-define(REQUEST, <<"GET / HTTP/1.0\r\nHost:w\r\n\r\n">>).

%% Bytes of a reply, and how many have come. `any': whatever comes at once is a reply.
-type replies() :: any | {Size :: pos_integer(), Received :: non_neg_integer()}.

-spec describe() -> weir_load_scenario:description().
describe() ->
    #{
        summary => "connect, a request of 26 bytes, a reply, reset; at a growing rate",
        help => "Each request has its own connection. Its response time counts from when the connect was due.\n",
        arrivals => connection,
        options => [reply_option()],
        defaults => [{rate, "44.4t"}]
    }.

%% @doc Returns the option `reply'.
-spec reply_option() -> weir_load_scenario:option().
reply_option() ->
    #{name => reply, type => {integer, 1, 1_000_000}, value => "BYTES",
        help => "bytes of a reply (the bytes that come first)"}.

-spec init(#{reply => pos_integer(), _ => _}) -> {ok, replies()}.
init(#{reply := Size}) -> {ok, {Size, 0}};
init(#{}) -> {ok, any}.

-spec connect(pos_integer(), replies()) -> {ok, replies()}.
connect(_Number, Replies) -> {ok, Replies}.

-spec request(pos_integer(), replies()) -> {ok, iodata(), replies()}.
request(_Sequence, Replies) -> {ok, ?REQUEST, Replies}.

-spec response(binary(), replies()) -> {ok, [weir_load_scenario:event()], replies()}.
response(_Data, any) ->
    {ok, [answered], any};
response(Data, {Size, Received}) ->
    Total = Received + byte_size(Data),
    {ok, lists:duplicate(Total div Size, answered), {Size, Total rem Size}}.

-spec done(replies()) -> ok.
done(_Replies) -> ok.
