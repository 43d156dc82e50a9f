%% @doc All counters of Weir, in one table. Exporters and `docs/counters.md' are made from it.
%%
%% A counter only grows, from 0 at the creation of its subject. A gauge goes up and down.
-module(weir_counters).

-export([table/0]).
-export([table/1]).
-export([values/2]).

-export_type([subject/0, row/0]).

-type subject() :: pollset | listener | reactor | group | relay.
%% What is counted: {@link weir:pollsets/0}, {@link weir:info/1}, {@link weir_reactor:info/1}, {@link
%% weir_group:info/1} and {@link weir:relay_info/1}.

-type row() :: #{
    subject := subject(),
    name := atom(),
    kind := counter | gauge,
    unit := bytes | microseconds | nanoseconds | none,
    help := string()
}.

%% @doc Returns all counters.
-spec table() -> [row(), ...].
table() ->
    [Row || Subject <- [pollset, listener, reactor, group, relay], Row <- table(Subject)].

%% @doc Returns the counters of one subject.
-spec table(subject()) -> [row(), ...].
table(Subject) ->
    [
        #{subject => Subject, name => Name, kind => Kind, unit => Unit, help => Help}
     || {Name, Kind, Unit, Help} <- rows(Subject)
    ].

%% @doc Returns the values of a subject's counters from the map that describes it, in the order of the table. Values
%% that are missing, `undefined' or `infinity' are left out.
-spec values(subject(), map()) -> [{Name :: atom(), number()}].
values(Subject, Info) ->
    [{Name, Value} || {Name, _, _, _} <- rows(Subject), Value <- [value(Name, Info)], is_number(Value)].

value(a_to_b_bytes, #{a_to_b := #{bytes := Bytes}}) -> Bytes;
value(a_to_b_packets, #{a_to_b := #{packets := Packets}}) -> Packets;
value(b_to_a_bytes, #{b_to_a := #{bytes := Bytes}}) -> Bytes;
value(b_to_a_packets, #{b_to_a := #{packets := Packets}}) -> Packets;
value(replies, #{reply_us := #{count := Count}}) -> Count;
value(Name, Info) -> maps:get(Name, Info, undefined).

rows(pollset) ->
    pollset_rows();
rows(reactor) ->
    [
        {connections, gauge, none, "connections that are open or being opened"},
        {failed_handshakes, counter, none, "connections whose PROXY header failed, in all reactors of the listener"},
        {callbacks, counter, none, "events, messages and ticks for which callbacks were called"},
        {callback_ns, counter, nanoseconds, "time in those callbacks"}
        | rows(pollset)
    ];
rows(listener) ->
    listener_rows();
rows(group) ->
    [
        {members, gauge, none, "sockets in the group"},
        {pending, gauge, none, "broadcasts that the slowest pollset still has to send"},
        {broadcasts, counter, none, "broadcasts"},
        {sent, counter, none, "messages that the kernel took at once, counted for each member"},
        {queued, counter, none, "messages queued for their member"},
        {dropped, counter, none, "messages dropped by the policy"},
        {disconnected, counter, none, "members closed by the policy"}
    ];
rows(relay) ->
    [
        {a_to_b_bytes, counter, bytes, "bytes received from A, the client"},
        {a_to_b_packets, counter, none, "reads that returned bytes of A"},
        {b_to_a_bytes, counter, bytes, "bytes received from B, the server"},
        {b_to_a_packets, counter, none, "reads that returned bytes of B"},
        {duration_us, counter, microseconds, "time since the relay began"},
        {idle_us, gauge, microseconds, "time since bytes last moved"},
        {first_byte_us, gauge, microseconds, "time from the beginning to the first byte of B; absent until then"},
        {replies, counter, none, "replies of B to A"}
    ].

pollset_rows() ->
    [
        {sockets, gauge, none, "sockets that the pollset serves"},
        {polls, counter, none, "polls"},
        {empty_polls, counter, none, "polls that returned no sockets"},
        {events, counter, none, "ready sockets that polls returned"},
        {events_min, gauge, none, "fewest ready sockets of a poll that returned any"},
        {events_max, gauge, none, "most ready sockets of a poll"},
        {sleeps, counter, none, "sleeps of the poller"},
        {asleep_ns, counter, nanoseconds, "time that the poller slept"},
        {gathers, counter, none, "waits for more data of a bulk stream before waking the poller"},
        {wakes_by_thread, counter, none, "wake-ups of the poller by the pollset's thread, for an event of the kernel"},
        {wakes_by_process, counter, none, "wake-ups of the poller by processes with work for it"},
        {polling_ns, counter, nanoseconds, "time in polls that returned sockets"},
        {between_ns, counter, nanoseconds,
            "time between the previous poll and those, unless the poller slept: the longest that events waited"},
        {reads, counter, none, "read system calls"},
        {read_bytes, counter, bytes, "bytes read"},
        {writes, counter, none, "write system calls"},
        {written_bytes, counter, bytes, "bytes written"},
        {short_writes, counter, none, "writes that the kernel took only in part"},
        {file_waits, counter, none, "parts of reactors' files that were read from disk before they were sent"},
        {files_cut, counter, none, "connections closed because a file became shorter while it was sent"},
        {accepts, counter, none, "connections accepted"},
        {asked_away, counter, none, "requests on this scheduler for data of sockets that another one polls"},
        {faults, counter, none, "sockets closed because of a bug of Weir; see the log"},
        {moved_in, counter, none, "sockets moved here from another pollset"},
        {moved_out, counter, none, "sockets moved from here to another pollset"},
        {contended, counter, none, "lock waits on the ready list"}
    ].

listener_rows() ->
    [
        {connections, gauge, none, "accepted connections that are not closed"},
        {waiting, gauge, none, "accepted connections without a process yet"},
        {backlog, gauge, none, "connections in the kernel that are not accepted yet; absent for Unix sockets"},
        {max_backlog, gauge, none, "their limit; the kernel drops connections above it; absent for Unix sockets"},
        {max_connections, gauge, none, "connection limit; absent if there is none"},
        {accepted, counter, none, "connections accepted"},
        {overload, counter, none, "connections reset above max_connections"},
        {denied, counter, none, "connections reset by the lists allow and deny"},
        {crowded, counter, none, "connections reset above per_address"},
        {full_pauses, counter, none, "pauses in accepting because of max_connections"},
        {rate_pauses, counter, none, "pauses in accepting because of max_rate"},
        {failed_handshakes, counter, none, "connections whose TLS handshake or PROXY header failed"},
        {replies, counter, none, "replies measured with the option measure"},
        {reply_ns, counter, nanoseconds, "sum of the reply times"}
    ].
