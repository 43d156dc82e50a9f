%% @private
%% @doc Feeds pages from a recording, in place of {@link weir_scope_feed}.
-module(weir_scope_replay).
-behaviour(gen_server).

-export([start_link/2]).
-export([init/1, handle_call/3, handle_cast/2]).

-spec start_link(file:name_all(), MaxStreams :: pos_integer()) -> {ok, pid()} | {error, weir_scope_recording:reason()}.
start_link(File, _Most) -> gen_server:start_link({local, weir_scope_feed}, ?MODULE, File, []).

%% @private
-spec init(file:name_all()) -> {ok, weir_scope_recording:recording()} | {stop, weir_scope_recording:reason()}.
init(File) ->
    case weir_scope_recording:read(File) of
        {ok, Recording} -> {ok, Recording};
        {error, Reason} -> {stop, Reason}
    end.

%% @private
-spec handle_call(term(), gen_server:from(), weir_scope_recording:recording()) ->
    {reply, term(), weir_scope_recording:recording()}.
handle_call(about, _From, Recording) ->
    Tabs = [#{name => Name, sorts => Sorts} || {Name, Sorts} <- weir_scope_recording:tabs(Recording)],
    {reply,
        #{
            node => weir_scope_recording:node(Recording),
            tabs => Tabs,
            recorded => true,
            now => erlang:system_time(millisecond)
        },
        Recording};
handle_call({history, second, After}, _From, Recording) ->
    {reply, {ok, weir_scope_recording:series(Recording, After)}, Recording};
handle_call({history, minute, _After}, _From, Recording) ->
    {reply, {ok, []}, Recording};
handle_call({look, Tab, _Sort, At}, _From, Recording) ->
    Moment =
        case {At, weir_scope_recording:span(Recording)} of
            {0, {_, Last}} -> Last;
            _ -> At
        end,
    Answer =
        case weir_scope_recording:look(Recording, atom_to_binary(Tab), Moment) of
            {ok, Then, Blocks} -> {ok, #{at => Then, blocks => Blocks}};
            {error, _} = Error -> Error
        end,
    {reply, Answer, Recording};
%% A recording has no new rows.
handle_call(stream, _From, Recording) ->
    {reply, {error, recorded}, Recording};
handle_call(metrics, _From, Recording) ->
    {reply, {error, recorded}, Recording}.

%% @private
-spec handle_cast(term(), weir_scope_recording:recording()) -> {noreply, weir_scope_recording:recording()}.
handle_cast(_, Recording) -> {noreply, Recording}.
