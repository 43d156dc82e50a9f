%% @doc How nodes share the messages of channels: not at all (`memory'), by Redis or Valkey, or in an Erlang cluster
%% (`pg').
%%
%% Set before the application starts, as `{weir_pubsub, [{broker, Options}]}' in its environment; a map:
%% <dl>
%% <dt>`kind' (`memory')</dt><dd>`memory': each node has its own channels. `redis': all nodes with the same Redis and
%%   prefix have the same channels. `pg': what is published on a node is also published on the other nodes of its
%%   Erlang cluster, at most once; each node has its own history and ids</dd>
%% <dt>`host' (`"127.0.0.1"'), `port' (6379)</dt><dd>the address of Redis 6 or later, or of Valkey</dd>
%% <dt>`username', `password'</dt><dd>credentials for Redis, binaries; none by default</dd>
%% <dt>`database' (0)</dt><dd>the number of the database</dd>
%% <dt>`prefix' (`<<"weir">>')</dt><dd>the beginning of the names of keys</dd>
%% </dl>
%%
%% A shard sends requests, and gets {@type news()}; it never waits. With Redis each shard has a broker process, which
%% reports that it has started, and whether it is connected to its server.
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
    | {publish, reference(), weir_pubsub:channel(), binary(), weir_pubsub:meta(), {
        Kept :: non_neg_integer(), pos_integer() | infinity
    }}
    | {delete, reference(), weir_pubsub:channel()}.
%% What a shard requests. `hello': the shard is new, and ignores the requests of earlier ones. `open': the messages of
%% a channel from now on, and a snapshot of those after an id.

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
%% What a shard gets, in the order in which it happened. After `connecting' and `away' no earlier request is answered.
%% `connecting' is followed by `connected' or `away' within seconds.

-callback start_link(Shard :: pos_integer()) -> {ok, pid()} | {error, term()}.
%% Options are not arguments, because supervisors log arguments, and one of the options is a password.

-define(DEFAULTS, #{kind => memory, host => "127.0.0.1", port => 6379, database => 0, prefix => <<"weir">>}).

%% @private
%% @doc Sets the options, for shards that start afterwards.
-spec configure(options()) -> ok | {error, weir_checked_options:bad_option()}.
configure(Options) ->
    case weir_checked_options:check(Options, [username, password | maps:keys(?DEFAULTS)], fun allowed/2) of
        ok -> persistent_term:put(?MODULE, {maps:merge(?DEFAULTS, Options), atomics:new(1024, [])});
        {error, _} = Error -> Error
    end.

allowed(kind, Value) ->
    lists:member(Value, [memory, redis, pg]) orelse "memory, redis or pg";
allowed(host, Value) ->
    (io_lib:char_list(Value) andalso Value =/= [] andalso not lists:member(0, Value)) orelse
        "the name or address of a host, a string";
allowed(port, Value) ->
    (is_integer(Value) andalso Value > 0 andalso Value < 65536) orelse "an integer from 1 to 65535";
allowed(database, Value) ->
    (is_integer(Value) andalso Value >= 0) orelse "an integer from 0 on";
allowed(prefix, Value) ->
    (is_binary(Value) andalso binary:match(Value, [<<"{">>, <<"}">>]) =:= nomatch) orelse "a binary without braces";
allowed(_Name, Value) ->
    is_binary(Value) orelse "a binary".

%% @private
%% @doc Returns the options, with defaults.
-spec options() -> options().
options() -> element(1, persistent_term:get(?MODULE)).

%% @doc Returns the kind of the broker.
-spec kind() -> kind().
kind() -> maps:get(kind, options()).

%% @private
%% @doc Whether these are the current options.
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
%% @doc Returns the registered name of the process for a shard.
-spec name(Shard :: pos_integer()) -> atom().
name(Index) -> list_to_atom("weir_pubsub_broker_" ++ integer_to_list(Index)).

%% @private
%% @doc Sends a request. If the process is not there, nothing happens; its successor reports its start.
-spec ask(Shard :: pos_integer(), request()) -> ok.
ask(Index, Request) -> gen_server:cast(name(Index), Request).

%% @private
%% @doc Sends news to a shard.
-spec report(Shard :: pos_integer(), news()) -> ok.
report(Index, News) -> gen_server:cast(weir_pubsub_shards:name(Index), {broker, News}).

%% @doc Returns the kind of the broker, and how many shards have lost their connection to it.
-spec status() -> #{kind := kind(), away := non_neg_integer()}.
status() ->
    {#{kind := Kind}, Away} = persistent_term:get(?MODULE),
    Shards = length(weir_pubsub_shards:all()),
    #{kind => Kind, away => lists:sum([atomics:get(Away, Index) || Index <- lists:seq(1, Shards)])}.

%% @private
%% @doc Records for {@link status/0} whether a shard is connected to its broker.
-spec set_connected(Shard :: pos_integer(), boolean()) -> ok.
set_connected(Index, IsConnected) ->
    {_, Away} = persistent_term:get(?MODULE),
    atomics:put(Away, Index, case IsConnected of true -> 0; false -> 1 end).
