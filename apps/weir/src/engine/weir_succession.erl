%% @private
%% @doc Keeps messages of a socket in order when their sender changes.
%%
%% The VM keeps the messages of one sender in order. The queue of a process with `{message_queue_data, off_heap}' may
%% have several buffers: senders are distributed over them, and the process empties one after the other. So another
%% sender may continue with a socket only after its owner has fetched the messages of the previous one.
%%
%% - An owner that asks for pending data does so itself ({@link finish/2}), and sends itself the data. A `receive'
%% looks into all buffers before its timeout.
%% - When a socket gets another poller, by {@link weir:migrate/2} or because the previous one was killed, the native
%% side notifies this module's process, and a process asks for the length of the owner's queue. That includes the
%% buffers, so it empties them. (`message_queue_data' alone does not.) An owner that does not run only delays its own
%% sockets.
-module(weir_succession).
-behaviour(gen_server).

-include("weir_step.hrl").

-export([start_link/0]).
-export([finish/2]).
-export([settle/1]).

-export([init/1]).
-export([handle_continue/2]).
-export([handle_call/3]).
-export([handle_cast/2]).
-export([handle_info/2]).

-spec start_link() -> {ok, pid()} | {error, term()}.
start_link() ->
    gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).

%% @doc Ends a call that has set options. Pending data is sent to the caller after all earlier messages, up to message
%% number `Told'.
-spec finish(weir_nif:handle(), {settle, Told :: non_neg_integer()} | Result) -> ok | Result.
finish(Handle, {settle, Told}) ->
    {message_queue_data, Kept} = process_info(self(), message_queue_data),
    _ = Kept =:= off_heap andalso take_in(),
    ?STEP,
    weir_nif:tell(Handle, Told, Kept);
finish(_Handle, Result) ->
    Result.

%% `process_info' of the caller itself does not empty the buffers. The new reference makes `receive' skip all older
%% messages.
take_in() ->
    Reference = make_ref(),
    receive
        Reference -> ok
    after 0 -> ok
    end.

-spec init([]) -> {ok, none, {continue, look}}.
init([]) ->
    {ok, none, {continue, look}}.

%% A socket may have begun to wait while this process was dead.
-spec handle_continue(look, none) -> {noreply, none}.
handle_continue(look, State) ->
    ok = settle_all(0),
    {noreply, State}.

-spec handle_call(term(), gen_server:from(), none) -> {reply, term(), none}.
handle_call(_Request, _From, State) ->
    {reply, {error, badarg}, State}.

-spec handle_cast(term(), none) -> {noreply, none}.
handle_cast(_Request, State) ->
    {noreply, State}.

-spec handle_info(term(), none) -> {noreply, none}.
handle_info({weir_unsettled, Handle}, State) ->
    ok = begin_settling(Handle),
    {noreply, State};
handle_info(_Message, State) ->
    {noreply, State}.

settle_all(Piece) ->
    case weir_nif:all_unsettled(Piece) of
        {ok, Handles} ->
            lists:foreach(fun begin_settling/1, Handles),
            settle_all(Piece + 1);
        done ->
            ok
    end.

begin_settling(Handle) ->
    _ = spawn(?MODULE, settle, [Handle]),
    ok.

%% @doc Waits until the owner of a socket has fetched its messages, then continues the socket.
-spec settle(weir_nif:handle()) -> ok.
settle(Handle) ->
    case weir_nif:unsettled(Handle) of
        {Owner, Told} ->
            %% The first request may arrive while the buffers are being emptied, after those of this socket's
            %% messages. When it is answered that is over, and the second request comes after the messages of all
            %% buffers.
            _ = process_info(Owner, message_queue_len),
            ?STEP,
            case process_info(Owner, [message_queue_len, message_queue_data]) of
                [_, {message_queue_data, Kept}] -> weir_nif:settled(Handle, Told, Kept);
                undefined -> ok
            end;
        done ->
            ok
    end.
