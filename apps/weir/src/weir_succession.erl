%% @private
%% @doc Has one sender of a socket's messages follow another.
%%
%% The VM keeps the messages of one sender in order. The queue of a process with `{message_queue_data, off_heap}' may consist of
%% buffers, which senders are distributed over and which the process empties one after the other. So another sender may go on
%% with a socket only when its owner has taken what the one before has sent.
%%
%% - An owner that asks for data that waits does so for itself ({@link finish/2}), and sends itself the data. A `receive' looks
%%   into all buffers before its time is over.
%% - Where a socket gets another poller, by {@link weir:migrate/2} or as the one before was killed, the engine names it here, and
%%   a process asks for the length of the owner's queue: what is in the buffers counts, so they are emptied. (For
%%   `message_queue_data' alone they are not.) An owner that does not run makes only its own sockets wait.
-module(weir_succession).
-behaviour(gen_server).

-include("../include/weir_step.hrl").

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

%% @doc The end of a call that has set options. If something waits, the caller is sent it behind all that it was sent before, up
%% to message number `Told'.
-spec finish(weir_nif:handle(), {settle, Told :: non_neg_integer()} | Result) -> ok | Result.
finish(Handle, {settle, Told}) ->
    {message_queue_data, Kept} = process_info(self(), message_queue_data),
    _ = Kept =:= off_heap andalso take_in(),
    ?STEP,
    weir_nif:tell(Handle, Told, Kept);
finish(_Handle, Result) ->
    Result.

%% `process_info' of the caller itself does not empty the buffers. The messages before are not looked at, as the reference is new.
take_in() ->
    Reference = make_ref(),
    receive
        Reference -> ok
    after 0 -> ok
    end.

-spec init([]) -> {ok, none, {continue, look}}.
init([]) ->
    {ok, none, {continue, look}}.

%% Some socket may have been named while this process was not there.
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

%% @doc Waits until the owner of a socket has taken what it was sent, and has the socket go on.
-spec settle(weir_nif:handle()) -> ok.
settle(Handle) ->
    case weir_nif:unsettled(Handle) of
        {Owner, Told} ->
            %% The first question may be taken while the buffers are being emptied, and theirs already has been. When it is
            %% answered that is over, and the second one is behind all that were in any buffer.
            _ = process_info(Owner, message_queue_len),
            ?STEP,
            case process_info(Owner, [message_queue_len, message_queue_data]) of
                [_, {message_queue_data, Kept}] -> weir_nif:settled(Handle, Told, Kept);
                undefined -> ok
            end;
        done ->
            ok
    end.
