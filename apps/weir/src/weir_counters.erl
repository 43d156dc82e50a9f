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
    [
        {sockets, gauge, none, "sockets that the pollset serves now"},
        {polls, counter, none, "polls"},
        {empty_polls, counter, none, "polls that found nothing ready"},
        {events, counter, none, "sockets that polls found ready"},
        {events_min, gauge, none, "fewest ready sockets of a poll that found any"},
        {events_max, gauge, none, "most ready sockets of a poll"},
        {sleeps, counter, none, "times that the poller went to sleep"},
        {asleep_ns, counter, nanoseconds, "time that the poller has slept"},
        {gathers, counter, none, "waits for more of a stream before the poller was woken for it"},
        {wakes_by_thread, counter, none, "times that it was woken by the thread, which heard of an event from the kernel"},
        {wakes_by_process, counter, none, "times that it was woken by a process, which had work for it"},
        {polling_ns, counter, nanoseconds, "time in polls that found something"},
        {between_ns, counter, nanoseconds, "time from the poll before to those, unless the poller slept: events waited so long at most"},
        {reads, counter, none, "reads of the kernel"},
        {read_bytes, counter, bytes, "bytes read"},
        {writes, counter, none, "writes to the kernel"},
        {written_bytes, counter, bytes, "bytes written"},
        {short_writes, counter, none, "writes of which the kernel took only a part"},
        {file_waits, counter, none, "parts of files of reactors that had to be read from a disk before they were sent"},
        {files_cut, counter, none, "connections closed because a file became shorter while it was sent"},
        {accepts, counter, none, "connections accepted"},
        {asked_away, counter, none, "data that was asked for on this scheduler, of sockets that another one polls"},
        {faults, counter, none, "sockets that a fault of Weir itself has closed; the log says which"},
        {moved_in, counter, none, "sockets that came from another pollset"},
        {moved_out, counter, none, "sockets that went to another pollset"},
        {contended, counter, none, "times that somebody had to wait for the lock of its list of ready sockets"}
    ];
rows(reactor) ->
    [
        {connections, gauge, none, "connections that are open or being made"},
        {failed_handshakes, counter, none, "connections whose PROXY header failed; of all reactors of a listener"},
        {callbacks, counter, none, "events of its sockets, messages and ticks that it had callbacks for"},
        {callback_ns, counter, nanoseconds, "time in those callbacks"}
        | rows(pollset)
    ];
rows(listener) ->
    [
        {connections, gauge, none, "connections that are accepted and not closed"},
        {waiting, gauge, none, "connections that no process has yet"},
        {backlog, gauge, none, "connections that the kernel has and nobody has accepted; absent for unix sockets"},
        {max_backlog, gauge, none, "most of those: beyond it the kernel drops connections; absent for unix sockets"},
        {max_connections, gauge, none, "most connections allowed; absent if there is no limit"},
        {accepted, counter, none, "connections that came in"},
        {overload, counter, none, "connections reset because there were max_connections"},
        {denied, counter, none, "connections reset by the lists allow and deny"},
        {crowded, counter, none, "connections reset because their address had per_address already"},
        {full_pauses, counter, none, "times that max_connections has stopped accepting"},
        {rate_pauses, counter, none, "times that max_rate has stopped accepting"},
        {failed_handshakes, counter, none, "connections that failed in their TLS handshake or PROXY header"},
        {replies, counter, none, "replies whose time was measured, with the option measure"},
        {reply_ns, counter, nanoseconds, "the sum of their times"}
    ];
rows(group) ->
    [
        {members, gauge, none, "sockets in the group"},
        {pending, gauge, none, "broadcasts on their way to the members of the slowest pollset"},
        {broadcasts, counter, none, "broadcasts"},
        {sent, counter, none, "messages that the kernel took at once, counted for each member"},
        {queued, counter, none, "messages that had to wait for their member"},
        {dropped, counter, none, "messages thrown away by the policy"},
        {disconnected, counter, none, "members closed by the policy"}
    ];
rows(relay) ->
    [
        {a_to_b_bytes, counter, bytes, "bytes that came from A, the client"},
        {a_to_b_packets, counter, none, "reads that gave bytes of A"},
        {b_to_a_bytes, counter, bytes, "bytes that came from B, the server"},
        {b_to_a_packets, counter, none, "reads that gave bytes of B"},
        {duration_us, counter, microseconds, "time since the relay began"},
        {idle_us, gauge, microseconds, "time since bytes last moved"},
        {first_byte_us, gauge, microseconds, "time from the beginning to the first byte of B; absent before"},
        {replies, counter, none, "times that B replied to A"}
    ].
