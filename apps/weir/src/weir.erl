%% @doc Weir: fast TCP for stock Erlang/OTP.
%%
%% The way in is one option: `{tcp_module, weir_tcp}' among those of `gen_tcp:listen/2' or `gen_tcp:connect/3,4', with
%% the application `weir' started. This module is what there is to look at.
-module(weir).

-export([pollsets/0]).
-export([sockets/0]).
-export([i/0]).
-export([move/2]).
-export([send_nowait/2]).
-export([notify_writable/1]).

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

%% @doc Sends as much as the kernel takes at once, and says how many bytes that were: it never waits and never queues.
%% `{ok, 0}' means that the kernel is full, or that bytes of other sends are queued before these; then
%% {@link notify_writable/1} tells when to go on. `einval' on a socket with packets (`{packet, 4}' and so on), which do not
%% go out in parts. For sockets of processes and of reactors, from any process.
%%
%% The idea is Zhi Jia Wang's patch of OTP for servers that must not block on a slow reader.
-spec send_nowait(weir_tcp:socket(), iodata()) ->
    {ok, BytesTaken :: non_neg_integer()} | {error, closed | inet:posix()}.
send_nowait({'$inet', _Module, Handle}, Data) ->
    weir_nif:send_now(Handle, Data).

%% @doc Has the caller told, once, when the kernel takes output and nothing is queued: by a message
%% `{weir_writable, Socket}', or if the caller is the socket's reactor by `handle_writable'. A close of the socket ends
%% the wait too: the next send says so. Another call, of whatever process, replaces this one.
-spec notify_writable(weir_tcp:socket()) -> ok | {error, closed | inet:posix()}.
notify_writable({'$inet', _Module, Handle}) ->
    weir_nif:notify_writable(Handle).
