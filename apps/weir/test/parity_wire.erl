%% What the kernel knows about both ends of a connection: how far data and the ends of input have arrived. Only this
%% shows that nothing more will happen; a pause could not.
-module(parity_wire).

-export([look/1, is_carried/2, has_ended/1, has_unread/1]).

-export_type([sight/0]).

-type sight() ::
    gone
    | #{
        state := byte(),
        sent := non_neg_integer(),
        unsent := non_neg_integer(),
        received := non_neg_integer(),
        unread := non_neg_integer(),
        active := boolean() | once | pos_integer()
    }.
%% A socket without a descriptor is `gone'.

%% IPPROTO_TCP and TCP_INFO with the bytes up to the newest field in use; SOL_SOCKET and SO_MEMINFO with its nine
%% words.
-define(TCP_INFO, {raw, 6, 11, 216}).
-define(SO_MEMINFO, {raw, 1, 55, 36}).

%% States of TCP with the kernel's numbers.
-define(ESTABLISHED, 1).
-define(FIN_WAIT1, 4).
-define(FIN_WAIT2, 5).
-define(TIME_WAIT, 6).
-define(CLOSE, 7).
-define(CLOSE_WAIT, 8).
-define(LAST_ACK, 9).
-define(CLOSING, 11).

%% The state of one end.
-spec look(inet:socket()) -> sight().
look(Socket) ->
    case inet:getopts(Socket, [?TCP_INFO, ?SO_MEMINFO, active]) of
        {ok, [{raw, 6, 11, Info}, {raw, 1, 55, Memory}, {active, Active}]} ->
            <<State, _:127/binary, Received:64/native, _:8/binary, Unsent:32/native, _:52/binary, Sent:64/native,
                Again:64/native>> = Info,
            <<Unread:32/native, _/binary>> = Memory,
            #{
                state => State,
                sent => Sent - Again,
                unsent => Unsent,
                received => Received,
                unread => Unread,
                active => Active
            };
        _ ->
            gone
    end.

%% Whether everything that each end has sent, including the end of its data, has arrived in the kernel of the other.
-spec is_carried(sight(), sight()) -> boolean().
is_carried(One, Other) ->
    is_carried_to(One, Other) andalso is_carried_to(Other, One).

is_carried_to(_From, gone) ->
    true;
is_carried_to(_From, #{state := ?CLOSE}) ->
    true;
is_carried_to(gone, To) ->
    has_ended(To);
is_carried_to(#{state := ?CLOSE}, _To) ->
    %% It was reset, or both directions have ended.
    true;
is_carried_to(#{state := State, sent := Sent, unsent := Unsent}, To = #{received := Received}) ->
    %% The eleventh small segment waits for the acknowledgement of the first, which is delayed.
    Unsent =:= 0 andalso Sent =< Received andalso (not has_finished(State) orelse has_ended(To)).

has_finished(State) ->
    lists:member(State, [?FIN_WAIT1, ?FIN_WAIT2, ?TIME_WAIT, ?LAST_ACK, ?CLOSING]).

%% Whether the end of the other's data or a reset has arrived at this end.
-spec has_ended(sight()) -> boolean().
has_ended(gone) -> true;
has_ended(#{state := State}) -> lists:member(State, [?TIME_WAIT, ?CLOSE, ?CLOSE_WAIT, ?LAST_ACK, ?CLOSING]).

%% Whether data or its end can be read.
-spec has_unread(sight()) -> boolean().
has_unread(gone) -> false;
has_unread(Sight = #{unread := Unread}) -> Unread > 0 orelse has_ended(Sight).
