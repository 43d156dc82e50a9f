//! The atoms that cross the boundary.

rustler::atoms! {
    ok, error, wait, full, more, disk, undefined,
    inet_tag = "$inet", weir_tag = "$weir",
    tcp, tcp_closed, tcp_error, tcp_passive,
    closed, timeout, einval, enotconn, ealready, enomem, not_owner, emfile, econnreset, retry, renew,
    r#true = "true", r#false = "false", once, infinity,
    binary, list, raw,
    read, write, read_write, flush, now, background, descriptor, any, loopback,
    weir_writable, weir_reader, weir_read, sendfile, directory, not_regular, weir_reaper, weir_abandoned,
    weir_lingers, accepted, writable, close, refused, send_queue_full, not_reactor,
    weir_wake, weir_succession, weir_unsettled, settle, on_heap, off_heap, stale, asleep, busy, replied, done,
    weir_pollsets, weir_descriptors, exhausted,
    down = "DOWN", socket, normal,
    // Listeners.
    weir_listener, weir_accept, throttled, recovered, empty, outdated, reset, pause, least_loaded, affinity, bound,
    connections, max_connections, waiting, overload, denied, crowded, full_pauses, rate_pauses, allow, deny,
    max_rate, per_address, placement, noproc, reactor, unsent, badarg, measure, measured, replies, reply_ns, backlog,
    max_backlog,
    // Options.
    active, mode, packet, buffer, recbuf, sndbuf, nodelay, reuseaddr, reuseport, keepalive, linger, send_timeout,
    send_timeout_close, high_watermark, low_watermark, high_msgq_watermark, low_msgq_watermark, delay_send,
    exit_on_close, show_econnreset, packet_size, line_delimiter, header, deliver, term, port, asn1, sunrm, cdr, fcgi,
    tpkt, line, http, httph, http_bin, httph_bin,
    priority, tos, tclass, ttl, recvtos, recvtclass, recvttl, pktoptions, ipv6_v6only, dontroute, nopush, reuseport_lb,
    exclusiveaddruse, keepcnt, keepidle, keepintvl, user_timeout, bind_to_device, netns, debug, read_ahead,
    // Relays.
    weir_relay, weir_relay_timer, weir_relay_observer, auto, bulk, relays, ebusy, epipe, a_to_b, b_to_a,
    bytes, packets, duration_us, idle_us, first_byte_us,
    reply_us, failed, ended_first, a, b, count, min, max, average, deviation, p50, p90, p95, p99, p999,
    // Groups.
    weir_group, drop_oldest, drop_newest, conflate, disconnect, not_member, sent, queued, dropped, disconnected,
    members, broadcasts, pending, served, leave, left, weir_reactor, weir_tcp,
    // Tracing.
    r#in = "in", in_exiting, remove, discard,
    // Families.
    inet, inet6, local,
    // Packets of HTTP.
    http_request, http_response, http_header, http_eoh, http_error, abs_path, absolute_uri = "absoluteURI", scheme,
    https, star = "*", data, emsgsize,
    // Statistics.
    recv_oct, recv_cnt, recv_max, recv_avg, recv_dvi, send_oct, send_cnt, send_max, send_avg, send_pend,
    // Information.
    owner, pollset, state, open, listening, connect, connecting, connected, acceptors, fd, module,
    polls, empty_polls, events, events_min, events_max, events_log2, sleeps, asleep_ns, gathers,
    wakes_by_thread, wakes_by_process, polling_ns, between_ns, reads, read_bytes, writes,
    written_bytes, short_writes, file_waits, files_cut, accepts, asked_away, faults, sockets, moved_in, moved_out,
    contended, groups,
}
