%% @private
%% @doc Executes the event `[weir, relay, stop]' for relays that began while it had a handler.
%%
%% A relay ends in a native call, often that of a poller, and its owner's message is not handled by Weir's Erlang
%% code. So the native side notifies this process. While it is dead ends of relays are not reported.
-module(weir_relay_observer).
-behaviour(gen_server).

-export([is_wanted/0]).
-export([start_link/0]).

-export([init/1]).
-export([handle_call/3]).
-export([handle_cast/2]).
-export([handle_info/2]).

-define(STOPPED, [weir, relay, stop]).

%% @doc Whether to report the end of a relay that begins now.
-spec is_wanted() -> boolean().
is_wanted() -> weir_event:is_attached(?STOPPED).

-spec start_link() -> {ok, pid()} | {error, term()}.
start_link() ->
    gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).

-spec init([]) -> {ok, []}.
init([]) ->
    {ok, []}.

-spec handle_call(term(), gen_server:from(), []) -> {reply, term(), []}.
handle_call(_Request, _From, State) ->
    {reply, {error, badarg}, State}.

-spec handle_cast(term(), []) -> {noreply, []}.
handle_cast(_Request, State) ->
    {noreply, State}.

-spec handle_info(term(), []) -> {noreply, []}.
handle_info({weir_relay, Relay, Owner, Result, Statistics, PeerA, PeerB}, State) ->
    #{duration_us := Duration, a_to_b := #{bytes := FromA}, b_to_a := #{bytes := FromB}} = Statistics,
    Measurements = #{
        monotonic_time => erlang:monotonic_time(),
        duration => erlang:convert_time_unit(Duration, microsecond, native),
        a_to_b_bytes => FromA,
        b_to_a_bytes => FromB
    },
    About = #{relay => Relay, owner => Owner, peer_a => PeerA, peer_b => PeerB, reason => reason(Result)},
    weir_event:execute(?STOPPED, Measurements, About),
    {noreply, State};
handle_info(_Message, State) ->
    {noreply, State}.

reason(closed) -> normal;
reason({error, Reason}) -> Reason.
