//! The help texts of `weir-drive`.

macro_rules! with_common_options {
    ($own:literal) => {
        concat!(
            $own,
            "
  --connections N   connections, opened before the warm-up (100)
  --connect-rate R  connections opened a second at most (10000; not of chat)
  --duration TIME   the measured window (3s)
  --warmup TIME     load before it (1s; idle: 2s)
  --timeout TIME    longest wait for a connection or a reply (5s)
  --observe PID     reports CPU time, context switches and memory of this process, the server; once for each of several
  --progress        a line on standard error each second"
        )
    };
}

pub(super) const HELP: &str = with_common_options!(
    "\
weir-drive: loads a server from one thread and reports what it did

usage: weir-drive COMMAND HOST:PORT [options]

  echo       messages that come back, each byte compared
  http       GET, keep-alive
  proxy      echo through a proxy to a backend in the driver
  accept     connect, one request, one reply, reset
  game       takes ticks of 512 bytes and answers each with 16
  idle       holds connections that say nothing (needs --observe)
  fanout     takes messages that the server sends to all
  chat       listeners and speakers in rooms of a push server
  download   takes what the server sends without end
  upload     sends without end, 64 KiB at a time

The last line on standard output is a JSON object. Exit code 1: not one request succeeded, or the run was not possible;
2: a wrong argument. SIGTERM and SIGINT end the window early. A connection that fails is counted and stays closed.

A command's own options: weir-drive COMMAND --help. Of all commands (accept has --concurrency for --connections):
"
);

pub(super) const HELP_ECHO: &str = with_common_options!(
    "\
usage: weir-drive echo HOST:PORT [options]

Each connection sends a message, waits for all of it to come back, compares each byte, and sends the next.

  --size BYTES      bytes of a message (64)
  --depth N         messages on their way at the same time (1)
  --frame FRAME     how messages are framed: none; 4, a length of four bytes in front; line, a newline at the end (none)
  --tls             TLS 1.3, set up before the warm-up; any certificate is taken
  --websocket       each message in a binary frame, after a handshake for /; not with --tls or --frame
  --rate R          R messages a second in all, at random moments, each on a connection drawn at random, latency counted
                    from when it was due (as fast as replies come); not with --depth, --tls or --websocket"
);

pub(super) const HELP_HTTP: &str = with_common_options!(
    "\
usage: weir-drive http HOST:PORT [options]

Each connection sends GET / and the next when the response is there. Responses need a Content-Length; a status other
than 2xx is an error.

  --depth N         requests that are sent at once, the next when all are answered (1)
  --rate R          R requests a second in all, as echo's; not with --depth"
);

pub(super) const HELP_PROXY: &str = with_common_options!(
    "\
usage: weir-drive proxy HOST:PORT --backend PORT [options]

As echo, through a proxy at HOST:PORT to an echo server that the driver runs itself on 127.0.0.1. Prints \"backend ready
PORT\" on standard error, then waits up to five seconds for the proxy to listen.

  --backend PORT    port of the echo server, 0 takes a free one
  --size BYTES      bytes of a message (64)
  --depth N         messages on their way at the same time (1)
  --rate R          R messages a second in all, as echo's; not with --depth"
);

pub(super) const HELP_ACCEPT: &str = "\
usage: weir-drive accept HOST:PORT [options]

Connects, sends 26 bytes, waits for the first bytes of the reply, resets, and connects again. A request is one such
connection, its latency the time from the connect to the reply.

  --concurrency N   connections at the same time (100)
  --duration TIME   the measured window (3s)
  --warmup TIME     load before it (1s)
  --timeout TIME    longest wait for a connection or a reply (5s)
  --backend PORT    through a proxy at HOST:PORT: the driver itself answers, on 127.0.0.1:PORT (see proxy --help)
  --hello BYTES     a ClientHello of TLS for bench.example instead, which is to come back whole (it never becomes TLS)
  --pieces N        pieces in which it is sent (1)
  --observe PID     reports CPU time, context switches and memory of this process, the server; once for each of several
  --progress        a line on standard error each second";

pub(super) const HELP_GAME: &str = with_common_options!(
    "\
usage: weir-drive game HOST:PORT [options]

Takes the ticks of 512 bytes that the server sends and answers each with 16 bytes. --connect-rate spreads the ticks."
);

pub(super) const HELP_IDLE: &str = with_common_options!(
    "\
usage: weir-drive idle HOST:PORT --observe PID [options]

Opens connections and holds them. Reports the server's memory before the first, after all (and the warm-up), the
difference for each connection, and the CPU time that the server uses meanwhile.

  --backend PORT    through a proxy at HOST:PORT: the driver itself holds the other ends, on 127.0.0.1:PORT (see proxy
                    --help); not with those below
  --http            each has asked for something before, and got it
  --websocket       each is a WebSocket
  --events          each is an event stream
  --path PATH       what is asked for (/)"
);

pub(super) const HELP_FANOUT: &str = with_common_options!(
    "\
usage: weir-drive fanout HOST:PORT [options]

Takes the messages that the server sends to all connections. A request is one message on one connection, its latency
the time since the timestamp in its first 8 bytes (weir-reference fanout).

  --websocket       each message in a binary frame, after a handshake for /
  --events          each message an event, of a stream from /: its id the first 8 bytes in hexadecimal, its data the rest
  --size BYTES      bytes of a message, at least 8, as the server sends them (128)
  --slow N          so many of the connections never read, and have the smallest receive buffer there is (0)"
);

pub(super) const HELP_CHAT: &str = with_common_options!(
    "\
usage: weir-drive chat HOST:PORT [options]

Clients listen in rooms of a push server (GET /sub/room-N), by one long poll after the other, and somebody speaks in each room
(POST /pub/room-N). What is said comes due at random moments, whatever the server makes of it. A request is a message that a
client has got, its latency the time since it was due. Reports the longest silence, too: the longest time for which something was
due and nobody got anything.

  --rooms N         rooms, among which the clients are divided (20)
  --speakers N      who speak in each room, each on a connection of its own, one request after the other (1)
  --rate R          messages that clients are to get a second, in all (300)
  --at-a-time N     instead, N messages on their way, the next when all clients have one of them; a request is such a message, its
                    latency the time until the last client has it; needs --rooms 1
  --churn R         clients that drop their connection and come back with their position, a second (0)
  --several         answers to polls may have several messages, in parts
  --events          clients listen to event streams
  --websocket       clients listen on WebSockets
  --slow N          so many of the clients never read, and have the smallest receive buffer there is (0)
  --size BYTES      bytes of a message (128)"
);

pub(super) const HELP_DOWNLOAD: &str = with_common_options!(
    "\
usage: weir-drive download HOST:PORT [options]

Takes what the server sends, and counts bytes (weir-reference chargen).

  --backend PORT    through a proxy at HOST:PORT: the driver itself sends, from 127.0.0.1:PORT (see proxy --help)
  --bytes N         ends the window after N bytes, if --duration has not ended it before"
);

pub(super) const HELP_UPLOAD: &str = with_common_options!(
    "\
usage: weir-drive upload HOST:PORT [options]

Sends as much as the server takes, 64 KiB at a time, and counts the bytes that the kernel has taken (weir-reference
discard).

  --backend PORT    through a proxy at HOST:PORT: the driver itself takes, on 127.0.0.1:PORT (see proxy --help)
  --bytes N         ends the window after N bytes, if --duration has not ended it before"
);
