//! The help texts of `weir-drive`.

macro_rules! with_common_options {
    ($own:literal) => {
        concat!(
            $own,
            "
  --connections N   connections, opened before the warm-up (100)
  --connect-rate R  most connections opened a second (10000; not for chat)
  --duration TIME   the measured window (3s)
  --warmup TIME     load before the window (1s; idle: 2s)
  --timeout TIME    longest wait for a connection or a reply (5s)
  --observe PID     report CPU time, context switches and memory of this server process; repeat for several processes
  --progress        print a line on standard error each second"
        )
    };
}

pub(super) const HELP: &str = with_common_options!(
    "\
weir-drive: loads a server from one thread and reports what it did

usage: weir-drive COMMAND HOST:PORT [options]

  echo       sends messages and compares each byte of the echo
  http       GET, keep-alive
  proxy      echo through a proxy to a backend in the driver
  accept     connect, one request, one reply, reset
  game       receives ticks of 512 bytes and answers each with 16
  idle       holds idle connections (needs --observe)
  fanout     receives messages that the server sends to all connections
  chat       listeners and speakers in rooms of a push server
  download   receives as fast as the server sends
  upload     sends as fast as the server receives, 64 KiB at a time

The last line on standard output is a JSON object. Exit code 1: no request succeeded, or the run was impossible; 2: a
wrong argument. SIGTERM and SIGINT end the window early. A connection that fails is counted and stays closed.

Options of a command: weir-drive COMMAND --help. Options of all commands (accept has --concurrency instead of
--connections):
"
);

pub(super) const HELP_ECHO: &str = with_common_options!(
    "\
usage: weir-drive echo HOST:PORT [options]

Each connection sends a message, waits for its complete echo, compares each byte, and sends the next.

  --size BYTES      bytes of a message (64)
  --depth N         messages in flight on each connection (1)
  --frame FRAME     framing of messages: none; 4, a length of four bytes in front; line, a newline at the end (none)
  --tls             TLS 1.3, set up before the warm-up; any certificate is accepted
  --websocket       each message in a binary frame, after a handshake for /; not with --tls or --frame
  --rate R          R messages a second in total, at random moments, each on a random connection; latency counts from
                    the due time (default: as fast as replies come); not with --depth, --tls or --websocket"
);

pub(super) const HELP_HTTP: &str = with_common_options!(
    "\
usage: weir-drive http HOST:PORT [options]

Each connection sends GET /, and again after each response. Responses need a Content-Length; a status other than 2xx is
an error.

  --depth N         pipelined requests; the next are sent when all are answered (1)
  --rate R          R requests a second in total, as for echo; not with --depth"
);

pub(super) const HELP_PROXY: &str = with_common_options!(
    "\
usage: weir-drive proxy HOST:PORT --backend PORT [options]

As echo, through a proxy at HOST:PORT to an echo server of the driver on 127.0.0.1. Prints \"backend ready PORT\" on
standard error, then waits up to five seconds until the proxy listens.

  --backend PORT    port of the echo server; 0: a free port
  --size BYTES      bytes of a message (64)
  --depth N         messages in flight on each connection (1)
  --rate R          R messages a second in total, as for echo; not with --depth"
);

pub(super) const HELP_ACCEPT: &str = "\
usage: weir-drive accept HOST:PORT [options]

Connects, sends 26 bytes, waits for the first bytes of the reply, resets, and connects again. Each
such connection counts as a request, with the time from the connect to the reply as its latency.

  --concurrency N   concurrent connections (100)
  --duration TIME   the measured window (3s)
  --warmup TIME     load before the window (1s)
  --timeout TIME    longest wait for a connection or a reply (5s)
  --backend PORT    test a proxy at HOST:PORT: the driver itself answers on 127.0.0.1:PORT (see proxy --help)
  --hello BYTES     send a TLS ClientHello for bench.example instead, which must be echoed in full; there is no
                    other TLS
  --pieces N        send it in N pieces (1)
  --observe PID     report CPU time, context switches and memory of this server process; repeat for several processes
  --progress        print a line on standard error each second";

pub(super) const HELP_GAME: &str = with_common_options!(
    "\
usage: weir-drive game HOST:PORT [options]

Receives ticks of 512 bytes and answers each with 16 bytes. A lower --connect-rate spreads the ticks."
);

pub(super) const HELP_IDLE: &str = with_common_options!(
    "\
usage: weir-drive idle HOST:PORT --observe PID [options]

Opens connections and holds them. Reports the server's memory before the first connection and after all of them (and the
warm-up), the difference for each connection, and the server's CPU time in the window.

  --backend PORT    test a proxy at HOST:PORT: the driver itself holds the other ends on 127.0.0.1:PORT (see proxy
                    --help); not with the options below
  --http            HTTP keep-alive connections after one request
  --websocket       WebSockets
  --events          event streams
  --path PATH       path of the request (/)"
);

pub(super) const HELP_FANOUT: &str = with_common_options!(
    "\
usage: weir-drive fanout HOST:PORT [options]

Receives the messages that the server sends to all connections. Each message on a connection counts as a request, with
the time since the timestamp in its first 8 bytes as its latency (weir-reference fanout).

  --websocket       each message in a binary frame, after a handshake for /
  --events          each message is an event of the stream /: the first 8 bytes in hexadecimal as the id, the rest
                    as data
  --size BYTES      bytes of a message, at least 8, as the server sends it (128)
  --slow N          connections that never read, with the smallest receive buffer (0)"
);

pub(super) const HELP_CHAT: &str = with_common_options!(
    "\
usage: weir-drive chat HOST:PORT [options]

Clients listen in rooms of a push server (GET /sub/room-N) with long polls, and a speaker publishes
in each room (POST /pub/room-N). Messages are due at random moments, independent of the server. Each
message that a client receives counts as a request, with the time since it was due as its latency.
Also reports the longest silence: the longest time in which a message was due and no client received
one.

  --rooms N         rooms, among which the clients are divided (20)
  --speakers N      speakers in each room, each on its own connection, one request at a time (1)
  --rate R          messages that all clients together receive a second (300)
  --at-a-time N     keep N messages in flight instead; the next is sent when all clients have one of them. A
                    request is then a message, with the time until the last client has it as its latency; needs
                    --rooms 1
  --churn R         clients a second that drop their connection and reconnect with their position (0)
  --several         answers to polls may have several messages, as multipart
  --events          clients listen to event streams
  --websocket       clients listen on WebSockets
  --slow N          clients that never read, with the smallest receive buffer (0)
  --size BYTES      bytes of a message (128)"
);

pub(super) const HELP_DOWNLOAD: &str = with_common_options!(
    "\
usage: weir-drive download HOST:PORT [options]

Receives and counts bytes (weir-reference chargen).

  --backend PORT    test a proxy at HOST:PORT: the driver itself sends from 127.0.0.1:PORT (see proxy --help)
  --bytes N         end the window after N bytes, unless --duration ends it earlier"
);

pub(super) const HELP_UPLOAD: &str = with_common_options!(
    "\
usage: weir-drive upload HOST:PORT [options]

Sends as fast as the server receives, 64 KiB at a time, and counts the bytes that the kernel has taken (weir-reference
discard).

  --backend PORT    test a proxy at HOST:PORT: the driver itself receives on 127.0.0.1:PORT (see proxy --help)
  --bytes N         end the window after N bytes, unless --duration ends it earlier"
);
