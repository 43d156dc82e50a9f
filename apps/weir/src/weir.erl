%% @doc Weir: fast TCP for stock Erlang/OTP.
%%
%% The way in is one option: `{tcp_module, weir_tcp}' among those of `gen_tcp:listen/2' or `gen_tcp:connect/3,4', with
%% the application `weir' started. This module is what there is to look at.
-module(weir).

-export([pollsets/0]).
-export([sockets/0]).
-export([i/0]).
-export([move/2]).
-export([relay/2]).
-export([relay/3]).
-export([relay_stop/1]).
-export([relay_info/1]).
-export([relays/0]).

-export_type([pollset/0]).

-type pollset() :: #{
    pollset := pos_integer(),
    poller := pid() | undefined,
    scheduler := pos_integer() | anywhere | undefined,
    sockets := non_neg_integer(),
    polls := non_neg_integer(),
    empty_polls := non_neg_integer(),
    events := non_neg_integer(),
    events_min := non_neg_integer(),
    events_max := non_neg_integer(),
    events_log2 := [non_neg_integer()],
    sleeps := non_neg_integer(),
    asleep_ns := non_neg_integer(),
    reads := non_neg_integer(),
    read_bytes := non_neg_integer(),
    writes := non_neg_integer(),
    written_bytes := non_neg_integer(),
    short_writes := non_neg_integer(),
    accepts := non_neg_integer(),
    moved_in := non_neg_integer(),
    moved_out := non_neg_integer()
}.
%% A pollset and what it has done since it was made. `events' counts sockets that polls found ready; `events_min' and
%% `events_max' are the fewest and most of a poll that found any, and the i-th number of `events_log2', counted from 0,
%% is how many polls found 2^i to 2^(i+1)-1 of them (the last: or more). `asleep_ns' are nanoseconds. `moved_in' and
%% `moved_out' count sockets that came from and went to other pollsets.
%%
%% The idea is the first table of Wei Cao's "pollset per scheduler": times, events, min, max, avg for each scheduler.

%% @doc The pollsets and their counters. Cheap: it reads numbers, and asks one process who polls. Empty where Weir has
%% no native part.
-spec pollsets() -> [pollset()].
pollsets() ->
    case weir_nif:available() andalso weir_pollsets:ensure_started() of
        false ->
            [];
        ok ->
            Pollers = weir_pollsets:pollers(),
            [pollset(Number, maps:get(Number, Pollers, {undefined, undefined})) || Number <- weir_pollsets:all()];
        {error, Reason} ->
            error({weir_not_started, Reason})
    end.

pollset(Number, {Poller, Scheduler}) ->
    (weir_nif:counters(Number))#{pollset => Number, poller => Poller, scheduler => Scheduler}.

%% @doc All open sockets of Weir, listening ones included. Walks the whole table, so it costs time in proportion to the
%% most sockets that were ever open at once, in pieces of a thousand that hold nobody up.
-spec sockets() -> [weir_tcp:socket()].
sockets() ->
    case weir_nif:available() of
        true -> sockets(0);
        false -> []
    end.

sockets(Piece) ->
    case weir_nif:sockets(Piece) of
        {ok, Handles} -> [{'$inet', weir_tcp, Handle} || Handle <- Handles] ++ sockets(Piece + 1);
        done -> []
    end.

%% @doc Prints all open sockets of Weir, as `inet:i/0' does those of OTP.
-spec i() -> ok.
i() ->
    Header = ["Socket", "Pollset", "Recv", "Sent", "Owner", "Local Address", "Foreign Address", "State"],
    Rows = [Row || Socket <- sockets(), Row <- row(Socket)],
    Table = [Header | Rows],
    Widths = [lists:max([string:length(Cell) || Cell <- Column]) || Column <- transpose(Table)],
    lists:foreach(fun(Row) -> io:put_chars([line(Row, Widths), $\n]) end, Table).

row(Socket = {_, _, Handle}) ->
    case inet:getstat(Socket, [recv_oct, send_oct]) of
        {ok, [{recv_oct, Received}, {send_oct, Sent}]} ->
            case weir_nif:info(Handle) of
                {ok, #{pollset := Pollset, owner := Owner, state := State}} ->
                    Numbers = [integer_to_list(Number) || Number <- [Handle, Pollset, Received, Sent]],
                    Addresses = [address(weir_tcp:sockname(Socket)), address(weir_tcp:peername(Socket))],
                    [Numbers ++ [owner(Owner) | Addresses] ++ [string:uppercase(atom_to_list(State))]];
                {error, closed} ->
                    []
            end;
        {error, einval} ->
            %% Closed meanwhile.
            []
    end.

owner(undefined) -> "-";
owner(Pid) -> pid_to_list(Pid).

address({ok, {local, <<0, Name/binary>>}}) -> ["local:@", printable(Name)];
address({ok, {local, Path}}) -> ["local:", printable(Path)];
address({ok, {IP, Port}}) when tuple_size(IP) =:= 8 -> [$[, inet:ntoa(IP), "]:", integer_to_list(Port)];
address({ok, {IP, Port}}) -> [inet:ntoa(IP), $:, integer_to_list(Port)];
address({error, _}) -> "*:*".

%% A path may hold any byte but null, and a name even that.
printable(Path) ->
    case unicode:characters_to_list(Path) of
        String when is_list(String) -> lists:map(fun shown/1, String);
        _ -> lists:map(fun shown/1, binary_to_list(Path))
    end.

shown(Character) when Character < $\s; Character >= 16#7f, Character < 16#a0 -> $.;
shown(Character) -> Character.

transpose([[] | _]) -> [];
transpose(Rows) -> [[hd(Row) || Row <- Rows] | transpose([tl(Row) || Row <- Rows])].

line([Cell], [_Width]) -> Cell;
line([Cell | Cells], [Width | Widths]) -> [string:pad(Cell, Width), $\s | line(Cells, Widths)].

%% @doc Takes a socket to the pollset of another scheduler: it is read, written and delivered from there, and nothing is
%% lost or reordered meanwhile. Its owner stays where it is; the fastest place for both is the same. Fails with `badarg'
%% for a scheduler that is not there.
-spec move(weir_tcp:socket(), Scheduler :: pos_integer()) -> ok | {error, closed | inet:posix()}.
move({'$inet', weir_tcp, Handle}, Scheduler) ->
    weir_nif:move(Handle, Scheduler).

%% @doc The same as {@link relay/3} without options.
-spec relay(weir_tcp:socket(), weir_tcp:socket()) ->
    {ok, weir_relay:relay()} | {error, weir_relay:refused() | inet:posix()}.
relay(A, B) ->
    weir_relay:start(A, B, #{}).

%% @doc Joins two connections: from now on what comes from either goes to the other, without a process in between.
%%
%% Both sockets must be the caller's, connected, and plain: TCP over IPv4 or IPv6 or local, in any mixture, but not under
%% `ssl'. They are closed to everybody afterwards, and whoever monitors them is told. What was read from them and
%% delivered to nobody, and what was queued for sending, goes along, in order; what the caller has received is for
%% `prefix'. So a socket should be passive by now: what comes as a message is not relayed.
%%
%% The end of one direction is passed on and the other goes on (half-close); a reset is passed on as a reset. A side that
%% takes nothing stops the other: nothing is read that finds no room. When both directions have ended, or at the first
%% failure, the owner, which is the caller, gets
%% ```
%% {weir_relay, Relay, closed, Statistics}
%% {weir_relay, Relay, {error, Reason}, Statistics}
%% '''
%% with `timeout' or an `inet:posix()' (mostly `econnreset') as the reason. The statistics are those of {@link
%% weir_relay:statistics()}.
%%
%% Options:
%% <dl>
%% <dt>`prefix' (none)</dt><dd>goes to B first, as if it had just come from A</dd>
%% <dt>`buffer' (65536)</dt><dd>bytes of each direction that may have been read and not written, up to 1048576. A
%%   direction that is spliced may hold 262144 by reference, unless another number than the default is given</dd>
%% <dt>`splice' (`auto')</dt><dd>`true' has bytes go by splice(2), through a pipe of the kernel, which takes two
%%   descriptors for each direction; `auto' does so while a direction is bulk, where it is cheaper, and `false' never</dd>
%% <dt>`idle_timeout' (`infinity')</dt><dd>milliseconds without a byte in either direction that end the relay</dd>
%% <dt>`half_close_timeout' (`infinity')</dt><dd>milliseconds that one direction may go on after the other has ended</dd>
%% <dt>`detached' (`false')</dt><dd>the relay goes on when its owner dies; otherwise it ends then</dd>
%% </dl>
%%
%% Errors, after which both sockets are as they were: `{Socket, Reason}' names the one that is `closed', `not_owner' (of
%% another process), `enotconn' (not connected, or no longer), `ebusy' (a file is being sent on it) or `epipe' (it is
%% being shut down for writing); a posix reason is the kernel's. What is no socket of Weir, and an option that there is
%% not, are exceptions, which say what is needed.
-spec relay(weir_tcp:socket(), weir_tcp:socket(), weir_relay:options()) ->
    {ok, weir_relay:relay()} | {error, weir_relay:refused() | inet:posix()}.
relay(A, B, Options) ->
    weir_relay:start(A, B, Options).

%% @doc Ends a relay, from any process; nothing happens if it has ended. Both connections are closed. What was read from
%% one and not written to the other is lost: then that other one is reset, lest it takes what it has for the whole. The
%% owner gets `{weir_relay, Relay, closed, Statistics}'.
-spec relay_stop(weir_relay:relay()) -> ok.
relay_stop(Relay) ->
    weir_relay:stop(Relay).

%% @doc What a relay has carried so far, who owns it, and which pollset serves it.
-spec relay_info(weir_relay:relay()) -> {ok, weir_relay:info()} | {error, closed}.
relay_info(Relay) ->
    weir_relay:info(Relay).

%% @doc All relays, at the cost of {@link sockets/0}.
-spec relays() -> [weir_relay:relay()].
relays() ->
    weir_relay:list().
