%% @private
%% @doc Who may change the tables of a shard just now: the shard, or a reactor for the time of one publication.
%%
%% A publication that a reactor makes itself costs no message, and the response goes out with those of the other connections. A
%% reactor only tries: where somebody else has the claim, it asks the shard by a message. So only shards wait. A publication takes
%% microseconds, so a shard first yields, which lets a holder on its own scheduler go on. A holder that has not released the claim by then does
%% not run: other processes of its scheduler do, or other threads of its core. Then the shard sleeps between its looks. Processes of
%% users are never holders, because one that is killed while it is one costs the shard its channels.
-module(weir_pubsub_claim).

-export([new/0]).
-export([try_take/1]).
-export([take/1]).
-export([release/1]).

-export_type([claim/0]).

-opaque claim() :: atomics:atomics_ref().

-define(FREE, 0).

%% How often a shard yields before it takes the holder for one that does not run. With nothing else to do that is 5 µs.
-define(YIELDS, 16).

%% How long it sleeps between its looks then, in milliseconds.
-define(SLEEP_MS, 1).

-spec new() -> claim().
new() -> atomics:new(1, [{signed, false}]).

%% @doc Takes it for the caller, if nobody has it.
-spec try_take(claim()) -> boolean().
try_take(Claim) -> atomics:compare_exchange(Claim, 1, ?FREE, own()) =:= ok.

%% @doc Takes it as soon as nobody has it. `of_dead': who had it died with it, and what it has changed may be half done.
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

%% @doc Gives it back.
-spec release(claim()) -> ok.
release(Claim) -> atomics:put(Claim, 1, ?FREE).

%% A pid as a number: a word holds nothing else.
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
