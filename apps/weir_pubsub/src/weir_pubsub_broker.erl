%% @doc Where the messages of several nodes meet: nowhere (`memory'), in Redis or Valkey, or in each node of an Erlang cluster (`pg').
%%
%% Set once for the application, before it starts, as `{weir_pubsub, [{broker, Options}]}' in its environment; a map:
%% <dl>
%% <dt>`kind' (`memory')</dt><dd>`memory': each node has channels of its own. `redis': channels are those of all nodes that use the same
%%   Redis and prefix. `pg': what is published in a node is also published in the other nodes of its Erlang cluster, at most once;
%%   each has its own history and ids</dd>
%% <dt>`host' (`"127.0.0.1"'), `port' (6379)</dt><dd>of Redis 6 or later, or Valkey</dd>
%% <dt>`username', `password'</dt><dd>for Redis, binaries; none unless given</dd>
%% <dt>`database' (0)</dt><dd>its number</dd>
%% <dt>`prefix' (`<<"weir">>')</dt><dd>what the names of keys begin with</dd>
%% </dl>
%%
%% A shard asks, and is told by {@type news()}; it never waits. A broker is a process for each shard, which reports that it is there and
%% whether its server is.
-module(weir_pubsub_broker).

-export([configure/1]).
-export([options/0]).
-export([kind/0]).
-export([is/1]).
-export([children/1]).
-export([name/1]).
-export([ask/2]).
-export([report/2]).
-export([status/0]).
-export([set_connected/2]).

-export_type([options/0, kind/0, request/0, news/0, snapshot/0]).

-type kind() :: memory | redis | pg.

-type options() :: #{
    kind => kind(),
    host => string(),
    port => inet:port_number(),
    username => binary(),
    password => binary(),
    database => non_neg_integer(),
    prefix => binary()
}.

-type request() ::
    hello
    | {open, weir_pubsub:channel(), Known :: weir_pubsub_id:id() | none}
    | {leave, weir_pubsub:channel()}
    | {publish, reference(), weir_pubsub:channel(), binary(), weir_pubsub:meta(), {Kept :: non_neg_integer(), pos_integer() | infinity}}
    | {delete, reference(), weir_pubsub:channel()}.
%% What a shard asks. `hello': the shard is new, and knows nothing of what others asked. `open': messages of a channel from now on, and
%% a snapshot of those behind an id.

-type snapshot() :: #{
    epoch := pos_integer(),
    last := non_neg_integer(),
    messages := [{Number :: pos_integer(), Age :: non_neg_integer(), binary(), weir_pubsub:meta()}]
}.

-type news() ::
    connecting
    | connected
    | away
    | {opened, weir_pubsub:channel(), snapshot()}
    | {message, weir_pubsub:channel(), weir_pubsub_id:id(), binary(), weir_pubsub:meta()}
    | {answer, reference(), {ok, weir_pubsub_id:id(), Kept :: non_neg_integer()} | {error, no_channel | unavailable}}
    | {deleted, weir_pubsub:channel(), Epoch :: pos_integer()}.
%% What a shard is told, in the order in which it happened. After `connecting' and `away' nothing that was
%% asked before is answered; `connecting' is followed by one of the other two within seconds.

-callback start_link(Shard :: pos_integer()) -> {ok, pid()} | {error, term()}.
%% Options are not among the arguments, because supervisors put those into the log, and there is a password in them.

-define(DEFAULTS, #{kind => memory, host => "127.0.0.1", port => 6379, database => 0, prefix => <<"weir">>}).

%% @private
%% @doc Takes options, for shards that start afterwards.
-spec configure(options()) -> ok | {error, weir_checked_options:bad_option()}.
configure(Options) ->
    case weir_checked_options:check(Options, [username, password | maps:keys(?DEFAULTS)], fun allowed/2) of
        ok -> persistent_term:put(?MODULE, {maps:merge(?DEFAULTS, Options), atomics:new(1024, [])});
        {error, _} = Error -> Error
    end.

allowed(kind, Value) -> lists:member(Value, [memory, redis, pg]) orelse "memory, redis or pg";
allowed(host, Value) ->
    (io_lib:char_list(Value) andalso Value =/= [] andalso not lists:member(0, Value)) orelse "the name or address of a host, a string";
allowed(port, Value) -> (is_integer(Value) andalso Value > 0 andalso Value < 65536) orelse "an integer from 1 to 65535";
allowed(database, Value) -> (is_integer(Value) andalso Value >= 0) orelse "an integer from 0 on";
allowed(prefix, Value) -> (is_binary(Value) andalso binary:match(Value, [<<"{">>, <<"}">>]) =:= nomatch) orelse "a binary without braces";
allowed(_Name, Value) -> is_binary(Value) orelse "a binary".

%% @private
%% @doc The options, with defaults.
-spec options() -> options().
options() -> element(1, persistent_term:get(?MODULE)).

%% @doc Which one it is.
-spec kind() -> kind().
kind() -> maps:get(kind, options()).

%% @private
%% @doc Whether these are the options of now.
-spec is(options()) -> boolean().
is(Options) -> maps:merge(?DEFAULTS, Options) =:= options().

%% @private
%% @doc The processes of the broker, for the supervisor of the shards.
-spec children(Shards :: pos_integer()) -> [supervisor:child_spec()].
children(Shards) ->
    case options() of
        #{kind := memory} ->
            [];
        #{kind := pg} ->
            [#{id => pg, start => {weir_pubsub_pg, start_link, []}}];
        #{kind := redis} ->
            [#{id => name(Index), start => {weir_pubsub_redis, start_link, [Index]}} || Index <- lists:seq(1, Shards)]
    end.

%% @private
%% @doc The registered name of the process for a shard.
-spec name(Shard :: pos_integer()) -> atom().
name(Index) -> list_to_atom("weir_pubsub_broker_" ++ integer_to_list(Index)).

%% @private
%% @doc Asks. Where nobody is there nothing happens: who comes next says so.
-spec ask(Shard :: pos_integer(), request()) -> ok.
ask(Index, Request) -> gen_server:cast(name(Index), Request).

%% @private
%% @doc Tells a shard.
-spec report(Shard :: pos_integer(), news()) -> ok.
report(Index, News) -> gen_server:cast(weir_pubsub_shards:name(Index), {broker, News}).

%% @doc Which broker there is, and how many of the shards have lost it.
-spec status() -> #{kind := kind(), away := non_neg_integer()}.
status() ->
    {#{kind := Kind}, Away} = persistent_term:get(?MODULE),
    Shards = length(weir_pubsub_shards:all()),
    #{kind => Kind, away => lists:sum([atomics:get(Away, Index) || Index <- lists:seq(1, Shards)])}.

%% @private
%% @doc Notes for {@link status/0} whether a shard has its broker.
-spec set_connected(Shard :: pos_integer(), boolean()) -> ok.
set_connected(Index, IsConnected) ->
    {_, Away} = persistent_term:get(?MODULE),
    atomics:put(Away, Index, case IsConnected of true -> 0; false -> 1 end).
