%% @doc Groups: one message to many sockets, without a process in between.
%%
%% A member is a socket of Weir, of a process or of a reactor, but not one under `ssl'. A broadcast costs its caller one call.
%% Each pollset then writes to its own members, in slices, and serves its other sockets in between. All members share one
%% buffer with the message.
%%
%% A member gets the broadcasts that are made while it is a member, in their order. Each message is whole: it comes between
%% other sends on the socket, never within one. If a member has a `packet' type with a length in front, its messages have
%% that too. A member that closes, or becomes part of a relay, leaves the group.
%%
%% Messages that a member does not take wait for it, within the bounds of the group; then the group's policy decides. So a
%% member that reads gets everything, a slow one gets a part, and neither costs the others anything.
%%
%% A group belongs to the process that created it and is deleted when that process dies. Any process may use it.
-module(weir_group).

-include("weir_socket.hrl").

-export([new/1]).
-export([delete/1]).
-export([join/2, join/3]).
-export([leave/2]).
-export([withdraw/1]).
-export([broadcast/2]).
-export([broadcast/3]).
-export([size/1]).
-export([info/1]).

-export_type([group/0, options/0, settings/0, join_options/0, broadcast_options/0, info/0, outcomes/0]).

-opaque group() :: {weir_group, weir_nif:group()}.

-type options() :: #{
    policy => drop_oldest | drop_newest | conflate | disconnect | leave,
    max_messages => pos_integer(),
    max_bytes => non_neg_integer(),
    backlog => pos_integer()
}.
%% See {@link new/1}.

-type join_options() :: #{once => boolean(), first => iodata()}.
%% See {@link join/3}.

-type settings() :: {
    Overflow :: atom(), MaxMessages :: pos_integer(), MaxBytes :: non_neg_integer(), Backlog :: pos_integer()
}.
%% The options as the native part has them.

-type broadcast_options() :: #{except => weir_tcp:socket(), notify => reference(), mark => non_neg_integer()}.
%% See {@link broadcast/3}.

-type outcomes() :: #{
    sent := non_neg_integer(), queued := non_neg_integer(), dropped := non_neg_integer(), disconnected := non_neg_integer()
}.
%% Outcomes of messages, counted once per member. `sent': the kernel took the message at once. `queued': it waits or has
%% waited for the member. `dropped': it was discarded. `disconnected': members that were closed. A message that was
%% queued and later dropped counts as both. One for which a member has left is `dropped'. A member that moves to another pollset
%% meanwhile is counted like any other.

-type info() :: #{
    owner := pid(),
    members := non_neg_integer(),
    broadcasts := non_neg_integer(),
    pending := non_neg_integer(),
    sent := non_neg_integer(),
    queued := non_neg_integer(),
    dropped := non_neg_integer(),
    disconnected := non_neg_integer()
}.
%% The state and the counters of a group. `pending' are broadcasts that are on their way to the members of the slowest pollset.

-define(IS_MARK(Mark), (is_integer(Mark) andalso Mark >= 0 andalso Mark < 1 bsl 64)).

-define(BROADCAST, [weir, group, broadcast]).

-define(DEFAULTS, #{policy => drop_oldest, max_messages => 64, max_bytes => 16#100000, backlog => 64}).

%% @doc Makes a group of the calling process.
%%
%% <dl>
%% <dt>`policy' (`drop_oldest')</dt><dd>what happens to a message for a member that has as many waiting as it may:
%%   `drop_oldest' discards the message that has waited longest, `drop_newest' the new message, and `disconnect' closes the
%%   connection, as an error of the connection would. `leave' ends the membership: what waits still goes out, and the owner gets
%%   `{weir_group, left, Socket, Group, Mark}', with the `mark' of the first message that the member has not had; the
%%   `handle_info/2' of a reactor gets `{{weir_reactor, Socket}, left, Group, Mark}'. It can join again, with what it has
%%   missed as `first'. `conflate' always keeps only the latest message: for states, of which
%%   only the last one matters. A message that has begun to go out always goes out whole</dd>
%% <dt>`max_messages' (64)</dt><dd>messages of the group that may wait for one member</dd>
%% <dt>`max_bytes' (1048576)</dt><dd>their bytes; one message may wait however large it is</dd>
%% <dt>`backlog' (64)</dt><dd>broadcasts that may be on their way to the members of one pollset: beyond that {@link
%%   broadcast/2} says `busy'</dd>
%% </dl>
%% Errors: `{bad_option, Name, Value, Allowed}'; `emfile' when there are 65536 groups; `no_native_part' on a system without
%% it.
-spec new(options()) -> {ok, group()} | {error, emfile | no_native_part | weir_checked_options:bad_option()}.
new(Options) ->
    case {weir_checked_options:check(Options, maps:keys(?DEFAULTS), fun allowed/2), weir_nif:available()} of
        {ok, true} -> make(Options);
        {ok, false} -> {error, no_native_part};
        {{error, _} = Error, _} -> Error
    end.

make(Options) ->
    #{policy := Policy, max_messages := Messages, max_bytes := Bytes, backlog := Backlog} = maps:merge(?DEFAULTS, Options),
    case weir_nif:group_new({Policy, Messages, Bytes, Backlog}) of
        {ok, Group} -> {ok, {weir_group, Group}};
        {error, emfile} -> {error, emfile}
    end.

allowed(policy, Policy) ->
    lists:member(Policy, [drop_oldest, drop_newest, conflate, disconnect, leave]) orelse
        "drop_oldest, drop_newest, conflate, disconnect or leave";
allowed(max_bytes, Bytes) -> weir_checked_options:number("bytes", 0, Bytes);
allowed(Count, Messages) when Count =:= max_messages; Count =:= backlog -> weir_checked_options:number("messages", 1, Messages).

%% @doc Deletes a group, from any process; nothing happens if it is gone. Its members stay open. Messages that wait for them
%% still go out; broadcasts that have not reached them do not, but for those that a pollset is just writing: to 32 members at most.
-spec delete(group()) -> ok.
delete({weir_group, Group}) ->
    weir_nif:group_delete(Group).

%% @doc The same as {@link join/3} without options.
-spec join(group(), weir_tcp:socket()) -> ok | {error, closed | enotconn | {bad_socket, term(), Needed :: string()}}.
join(Group, Socket) ->
    join(Group, Socket, #{}).

%% @doc Makes a connected socket a member, from any process; nothing happens if it is one. It gets what is broadcast from
%% now on. A socket may be in several groups.
%%
%% <dl>
%% <dt>`once' (`false')</dt><dd>the member gets one message: one that is sent or queued for it, and not one that is dropped. With
%%   that it leaves all groups that it has joined so, at the same moment, and its owner gets `{weir_group, served, Socket}'; the
%%   `handle_info/2' of a reactor gets it before anything that the peer has sent in answer. See {@link withdraw/1}</dd>
%% <dt>`first' (`<<>>')</dt><dd>what the member gets before the messages: history, for example. Nothing comes between. Like a message
%%   of the group it waits if the kernel does not take it, and the caller does not. For the `once' of a member it does not count</dd>
%% </dl>
%% A socket that cannot get `first' does not become a member, and nothing of it is sent. Errors: `full': as many messages of the group
%% wait for the socket as may, and the policy makes no room (`drop_newest' and `leave'). They are of an earlier membership: join again
%% when they are written, see {@link weir:notify_writable/1}. `closed' is the group or the socket, also one that was found closed when
%% `first' was written; `enotconn' a socket that is not connected; `emsgsize': `first'
%% has more than 1048576 bytes, or more than the packets of the socket; `{bad_option, Name, Value, Allowed}'; `{bad_socket, Term, Needed}' for a term that is no socket of
%% Weir, such as a connection with TLS.
-spec join(group(), weir_tcp:socket(), join_options()) ->
    ok | {error, closed | enotconn | emsgsize | full | weir_checked_options:bad_option() | {bad_socket, term(), Needed :: string()}}.
join({weir_group, Group}, ?SOCKET(Handle), Options) when Options =:= #{} ->
    weir_nif:group_join(Group, Handle, false, <<>>);
%% As thousands do it again and again.
join({weir_group, Group}, ?SOCKET(Handle), #{once := true} = Options) when map_size(Options) =:= 1 ->
    weir_nif:group_join(Group, Handle, true, <<>>);
join({weir_group, Group}, ?SOCKET(Handle), Options) ->
    case weir_checked_options:check(Options, [once, first], fun allowed_in_join/2) of
        ok -> weir_nif:group_join(Group, Handle, maps:get(once, Options, false), flat(maps:get(first, Options, <<>>)));
        {error, _} = Error -> Error
    end;
join({weir_group, _}, Socket, _Options) ->
    {error, {bad_socket, Socket, "a socket of Weir, without TLS"}}.

%% @doc Ends a membership, from any process. What waits for the member still goes out. `not_member' also if the group is deleted.
-spec leave(group(), weir_tcp:socket()) -> ok | {error, not_member}.
leave({weir_group, Group}, ?SOCKET(Handle)) ->
    weir_nif:group_leave(Group, Handle).

%% @doc Ends the memberships of a socket that are for one message, in all groups. After `ok' no such message reaches it any more,
%% so that its owner can send something else in its place. `served': it has had its message, and its reactor is about to be
%% told. A process that owns the socket has `{weir_group, served, Socket}' in its mailbox in that case. `closed' is the socket.
-spec withdraw(weir_tcp:socket()) -> ok | {error, served | closed}.
withdraw(?SOCKET(Handle)) ->
    weir_nif:group_withdraw(Handle).

%% @doc The same as {@link broadcast/3} without options.
-spec broadcast(group(), iodata()) -> {ok, Members :: non_neg_integer()} | {error, busy | closed | emsgsize}.
broadcast(Group, Message) ->
    broadcast(Group, Message, #{}).

%% @doc Sends a message to all members and returns their number. The caller does not wait: the pollsets write.
%%
%% <dl>
%% <dt>`except'</dt><dd>a socket that does not get it: mostly the one that it came from</dd>
%% <dt>`notify'</dt><dd>a reference. When every member has been written to, or passed over, the caller gets `{weir_group,
%%   Group, Reference, Outcomes}' with the {@type outcomes()} of this message. To send as fast as the members' sockets
%%   allow, wait for this before the next broadcast</dd>
%% <dt>`mark' (0)</dt><dd>what the caller knows the message by: a number below 2^64. See the policy `leave'</dd>
%% </dl>
%% Errors: `busy': the group's `backlog' is full, and nothing was sent. `closed': the group is deleted. `emsgsize': the message
%% has more than 1048576 bytes. `{bad_option, Name, Value, Allowed}': an option is wrong.
-spec broadcast(group(), iodata(), broadcast_options()) ->
    {ok, Members :: non_neg_integer()} | {error, busy | closed | emsgsize | weir_checked_options:bad_option()}.
broadcast({weir_group, _} = Group, Message, Options) when Options =:= #{} ->
    send(Group, Message, Options);
broadcast({weir_group, _} = Group, Message, #{mark := Mark} = Options) when map_size(Options) =:= 1, ?IS_MARK(Mark) ->
    send(Group, Message, Options);
broadcast({weir_group, _} = Group, Message, Options) ->
    case weir_checked_options:check(Options, [except, notify, mark], fun allowed_in_broadcast/2) of
        ok -> send(Group, Message, Options);
        {error, _} = Error -> Error
    end.

send({weir_group, Number} = Group, Message, Options) ->
    Bytes = flat(Message),
    Result = weir_nif:group_broadcast(Number, Bytes, except(Options), maps:get(notify, Options, undefined), maps:get(mark, Options, 0)),
    _ = weir_event:is_attached(?BROADCAST) andalso told(Result, byte_size(Bytes), Group),
    Result.

told({ok, Members}, Bytes, Group) ->
    weir_event:execute(?BROADCAST, #{members => Members, bytes => Bytes}, #{group => Group, result => ok});
told({error, Reason}, Bytes, Group) ->
    weir_event:execute(?BROADCAST, #{members => 0, bytes => Bytes}, #{group => Group, result => {error, Reason}}).

flat(Message) when is_binary(Message) -> Message;
flat(Message) -> iolist_to_binary(Message).

except(#{except := ?SOCKET(Handle)}) -> Handle;
except(#{}) -> undefined.

allowed_in_join(once, Once) -> is_boolean(Once) orelse "true or false";
allowed_in_join(first, First) -> is_iodata(First) orelse "iodata".

is_iodata(Term) ->
    try iolist_size(Term) of
        _ -> true
    catch
        error:badarg -> false
    end.

allowed_in_broadcast(except, ?SOCKET(Handle)) when is_integer(Handle) -> true;
allowed_in_broadcast(except, _) -> "a socket of {tcp_module, weir_tcp}";
allowed_in_broadcast(mark, Mark) -> ?IS_MARK(Mark) orelse "an integer from 0 to 18446744073709551615";
allowed_in_broadcast(notify, Reference) -> is_reference(Reference) orelse "a reference, of make_ref/0 for example".

%% @doc The number of members; 0 if the group is deleted.
-spec size(group()) -> non_neg_integer().
size({weir_group, Group}) ->
    weir_nif:group_size(Group).

%% @doc The state and the counters of a group. Cheap.
-spec info(group()) -> {ok, info()} | {error, closed}.
info({weir_group, Group}) ->
    weir_nif:group_info(Group).
