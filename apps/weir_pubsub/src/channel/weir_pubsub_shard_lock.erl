%% @private
%% @doc The lock on the tables of a shard. Its holder is the shard, or a reactor for the time of one publication.
%%
%% A publication that a reactor makes itself needs no message, and the response goes out with those of the other
%% connections. A reactor only tries: if the claim is taken, it sends the request to the shard. So only shards wait. A
%% publication takes microseconds, so a shard first yields, which lets a holder on its own scheduler continue. If the
%% claim is still taken after that, the holder is not running: its scheduler runs other processes, or its core other
%% threads. Then the shard sleeps between its tries. Processes of users are never holders, because a holder that is
%% killed costs the shard its channels.
-module(weir_pubsub_shard_lock).

-export([new/0]).
-export([try_take/1]).
-export([take/1]).
-export([release/1]).

-export_type([claim/0]).

-opaque claim() :: atomics:atomics_ref().

-define(FREE, 0).

%% How often a shard yields before it assumes that the holder is not running. On an idle scheduler this takes 5 µs.
-define(YIELDS, 16).

%% How long it sleeps between tries after that, in milliseconds.
-define(SLEEP_MS, 1).

-spec new() -> claim().
new() -> atomics:new(1, [{signed, false}]).

%% @doc Takes the claim if it is free.
-spec try_take(claim()) -> boolean().
try_take(Claim) -> atomics:compare_exchange(Claim, 1, ?FREE, own()) =:= ok.

%% @doc Waits until the claim is free, and takes it. `of_dead': its holder has died, and may have left its changes
%% incomplete.
-spec take(claim()) -> ok | of_dead.
take(Claim) -> take(Claim, ?YIELDS).

take(Claim, Yields) ->
    case atomics:compare_exchange(Claim, 1, ?FREE, own()) of
        ok ->
            ok;
        _ when Yields > 0 ->
            erlang:yield(),
            take(Claim, Yields - 1);
        Holder ->
            case is_process_alive(pid_of(Holder)) of
                true ->
                    timer:sleep(?SLEEP_MS),
                    take(Claim, 0);
                false ->
                    case atomics:compare_exchange(Claim, 1, Holder, own()) of
                        ok -> of_dead;
                        _ -> take(Claim, ?YIELDS)
                    end
            end
    end.

%% @doc Releases the claim.
-spec release(claim()) -> ok.
release(Claim) -> atomics:put(Claim, 1, ?FREE).

%% The pid as a number, because an atomic holds nothing else.
own() ->
    case get(?MODULE) of
        undefined ->
            "<0." ++ Text = pid_to_list(self()),
            [Number, Serial] = string:split(string:trim(Text, trailing, ">"), "."),
            Own = (list_to_integer(Number) bsl 32) bor list_to_integer(Serial) bor (1 bsl 31),
            _ = put(?MODULE, Own),
            Own;
        Own ->
            Own
    end.

pid_of(Holder) ->
    Serial = Holder band (1 bsl 31 - 1),
    list_to_pid(lists:concat(["<0.", Holder bsr 32, ".", Serial, ">"])).
