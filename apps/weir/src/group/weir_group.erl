%% @doc Groups: send one message to many sockets, without a process in between.
%%
%% A member is a socket of a process or of a reactor, but not a socket under `ssl'. A broadcast costs its caller one
%% call. Each pollset then writes to its own members in slices, and serves other sockets in between. All members share
%% one copy of the message.
%%
%% A member gets the broadcasts made while it is a member, in order. Each message is sent whole: between other sends
%% on the socket, never within one. If a member's `packet' type has a length header, messages get it too. A member
%% leaves the group when it closes or becomes part of a relay.
%%
%% If a member's socket is full, its messages are queued, within the limits of the group; beyond them the group's
%% policy decides. So a member that reads gets everything, a slow one gets a part, and neither affects the others.
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
%% The options as the native part takes them.

-type broadcast_options() :: #{except => weir_tcp:socket(), notify => reference(), mark => non_neg_integer()}.
%% See {@link broadcast/3}.

-type outcomes() :: #{
    sent := non_neg_integer(),
    queued := non_neg_integer(),
    dropped := non_neg_integer(),
    disconnected := non_neg_integer()
}.
%% Outcomes of messages, counted once per member. `sent': the kernel took the message at once. `queued': it was
%% queued. `dropped': it was discarded, or its member has left because of it. `disconnected': members that were
%% closed. A message that was queued and later dropped counts as both. A member that moves to another pollset is
%% counted like any other.

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
%% The state and the counters of a group. `pending': broadcasts that the slowest pollset still has to send.

-define(IS_MARK(Mark), (is_integer(Mark) andalso Mark >= 0 andalso Mark < 1 bsl 64)).

-define(BROADCAST, [weir, group, broadcast]).

-define(DEFAULTS, #{policy => drop_oldest, max_messages => 64, max_bytes => 16#100000, backlog => 64}).

%% @doc Creates a group, which belongs to the calling process.
%%
%% <dl>
%% <dt>`policy' (`drop_oldest')</dt><dd>what happens when a member's queue is full. `drop_oldest' discards its oldest
%% queued message, `drop_newest' the new message. `disconnect' closes the connection, as an error of the connection
%% would. `leave' ends the membership: queued messages still go out, and the owner gets `{weir_group, left, Socket,
%% Group, Mark}', with the `mark' of the first message that the member has missed; `handle_info/2' of a reactor gets
%% `{{weir_reactor, Socket}, left, Group, Mark}'. The member can join again, with the missed messages as `first'.
%% `conflate' keeps only the latest message, full or not: for states, of which only the last matters. A message whose
%% bytes have begun to go out is always sent whole</dd>
%% <dt>`max_messages' (64)</dt><dd>messages of the group that may be queued for one member</dd>
%% <dt>`max_bytes' (1048576)</dt><dd>their bytes; a single message may be queued however large it is</dd>
%% <dt>`backlog' (64)</dt><dd>broadcasts that one pollset may still have to send; beyond that {@link broadcast/2}
%% returns `busy'</dd>
%% </dl>
%% Errors: `{bad_option, Name, Value, Allowed}'; `emfile' if there are 65536 groups; `no_native_part' on an
%% unsupported system.
-spec new(options()) -> {ok, group()} | {error, emfile | no_native_part | weir_checked_options:bad_option()}.
new(Options) ->
    case {weir_checked_options:check(Options, maps:keys(?DEFAULTS), fun allowed/2), weir_nif:available()} of
        {ok, true} -> make(Options);
        {ok, false} -> {error, no_native_part};
        {{error, _} = Error, _} -> Error
    end.

make(Options) ->
    #{policy := Policy, max_messages := Messages, max_bytes := Bytes, backlog := Backlog} = maps:merge(
        ?DEFAULTS, Options
    ),
    case weir_nif:group_new({Policy, Messages, Bytes, Backlog}) of
        {ok, Group} -> {ok, {weir_group, Group}};
        {error, emfile} -> {error, emfile}
    end.

allowed(policy, Policy) ->
    lists:member(Policy, [drop_oldest, drop_newest, conflate, disconnect, leave]) orelse
        "drop_oldest, drop_newest, conflate, disconnect or leave";
allowed(max_bytes, Bytes) ->
    weir_checked_options:number("bytes", 0, Bytes);
allowed(Count, Messages) when Count =:= max_messages; Count =:= backlog ->
    weir_checked_options:number("messages", 1, Messages).

%% @doc Deletes a group, from any process. Does nothing if it is gone. Its members stay open, and messages queued for
%% them still go out. Broadcasts that have not reached a member do not, except those that a pollset is writing right
%% now: to 32 members at most.
-spec delete(group()) -> ok.
delete({weir_group, Group}) ->
    weir_nif:group_delete(Group).

%% @doc The same as {@link join/3} without options.
-spec join(group(), weir_tcp:socket()) -> ok | {error, closed | enotconn | {bad_socket, term(), Needed :: string()}}.
join(Group, Socket) ->
    join(Group, Socket, #{}).

%% @doc Makes a connected socket a member, from any process. Does nothing if it is one. It gets later broadcasts. A
%% socket may be in several groups.
%%
%% <dl>
%% <dt>`once' (`false')</dt><dd>the member gets one message, sent or queued; a dropped one does not count. Then it
%% leaves all groups joined with `once', at the same moment, and its owner gets `{weir_group, served, Socket}'.
%% `handle_info/2' of a reactor gets this before any answer of the peer. See {@link withdraw/1}</dd>
%% <dt>`first' (`<<>>')</dt><dd>sent to the member before its messages, with nothing in between: history, for example.
%% The caller does not wait: if the kernel does not take it, it is queued like a message of the group. It does not
%% count as the message of `once'</dd>
%% </dl>
%% If `first' cannot be sent the socket does not become a member, and nothing is sent. Errors: `full': the queue is
%% full with messages of an earlier membership, and the policy makes no room (`drop_newest' and `leave'); join again
%% when they are written, see {@link weir:notify_writable/1}. `closed': the group or the socket is closed, perhaps
%% found while writing `first'. `enotconn': the socket is not connected. `emsgsize': `first' has more than 1048576
%% bytes, or more than the packet type of the socket allows. `{bad_option, Name, Value, Allowed}': an option is wrong.
%% `{bad_socket, Term, Needed}': no socket of Weir, for example a TLS connection.
-spec join(group(), weir_tcp:socket(), join_options()) ->
    ok
    | {error,
        closed
        | enotconn
        | emsgsize
        | full
        | weir_checked_options:bad_option()
        | {bad_socket, term(), Needed :: string()}}.
join({weir_group, Group}, ?SOCKET(Handle), Options) when Options =:= #{} ->
    weir_nif:group_join(Group, Handle, false, <<>>);
%% A fast path: thousands of long polls join in this way, again and again.
join({weir_group, Group}, ?SOCKET(Handle), #{once := true} = Options) when map_size(Options) =:= 1 ->
    weir_nif:group_join(Group, Handle, true, <<>>);
join({weir_group, Group}, ?SOCKET(Handle), Options) ->
    case weir_checked_options:check(Options, [once, first], fun allowed_in_join/2) of
        ok -> weir_nif:group_join(Group, Handle, maps:get(once, Options, false), flat(maps:get(first, Options, <<>>)));
        {error, _} = Error -> Error
    end;
join({weir_group, _}, Socket, _Options) ->
    {error, {bad_socket, Socket, "a socket of Weir, without TLS"}}.

%% @doc Ends a membership, from any process. Messages queued for the member still go out. `not_member' also if the
%% group is deleted.
-spec leave(group(), weir_tcp:socket()) -> ok | {error, not_member}.
leave({weir_group, Group}, ?SOCKET(Handle)) ->
    weir_nif:group_leave(Group, Handle).

%% @doc Ends the memberships with `once' of a socket, in all groups. After `ok' no message of these groups reaches it,
%% so its owner can send something else. `served': the socket has got its message; `{weir_group, served, Socket}' is
%% in the mailbox of a process that owns it, or on its way to its reactor. `closed': the socket is closed.
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
%% <dt>`except'</dt><dd>a socket that does not get the message, usually its sender</dd>
%% <dt>`notify'</dt><dd>a reference. When all members have been served the caller gets `{weir_group, Group, Reference,
%% Outcomes}' with the {@type outcomes()} of this message. To send as fast as the members' sockets allow, wait for it
%% before the next broadcast</dd>
%% <dt>`mark' (0)</dt><dd>the caller's number for the message, below 2^64. See the policy `leave'</dd>
%% </dl>
%% Errors: `busy': the group's `backlog' is full, and nothing was sent. `closed': the group is deleted. `emsgsize':
%% the message has more than 1048576 bytes. `{bad_option, Name, Value, Allowed}': an option is wrong.
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
    Result = weir_nif:group_broadcast(
        Number, Bytes, except(Options), maps:get(notify, Options, undefined), maps:get(mark, Options, 0)
    ),
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

%% @doc Returns the number of members; 0 if the group is deleted.
-spec size(group()) -> non_neg_integer().
size({weir_group, Group}) ->
    weir_nif:group_size(Group).

%% @doc Returns the state and the counters of a group. Cheap.
-spec info(group()) -> {ok, info()} | {error, closed}.
info({weir_group, Group}) ->
    weir_nif:group_info(Group).
