//! A run as a value: the command and the amount of load.

use std::time::Duration;

use super::client_hello::Hello;
use super::pattern::Message;
use super::target::Target;

/// A run.
#[derive(Debug, PartialEq, Eq)]
pub struct Run {
    /// The kind of traffic.
    pub command: Command,
    /// The amount of load.
    pub load: Load,
}

/// The options that all commands share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Load {
    /// The server under test.
    pub target: Target,
    /// Concurrent connections.
    pub connections: u32,
    /// Most connections opened in a second; `None`: the driver's own rate.
    pub connect_rate: Option<u64>,
    /// Time under load before the window.
    pub warmup: Duration,
    /// Length of the measured window.
    pub duration: Duration,
    /// Bytes after which the window ends early.
    pub most_bytes: Option<u64>,
    /// Longest wait for a connection or a reply.
    pub timeout: Duration,
    /// Pids of the server.
    pub observe: Vec<u32>,
    /// Whether to print figures each second.
    pub progress: bool,
}

/// The protocol that carries messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Carrier {
    /// Plain TCP.
    #[default]
    Plain,
    /// TLS.
    Tls,
    /// WebSocket frames.
    WebSocket,
}

/// The protocol that carries broadcasts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Broadcast {
    /// Plain TCP.
    #[default]
    Bytes,
    /// WebSocket frames.
    WebSocket,
    /// Server-sent events.
    Events,
}

/// How clients listen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Listening {
    /// With long polls.
    #[default]
    Poll,
    /// With long polls whose answers may have several messages.
    Several,
    /// With an event stream.
    Events,
    /// With a WebSocket.
    WebSocket,
}

/// The rate of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Said {
    /// Messages a second that all clients together receive.
    Rate(u64),
    /// This many messages in flight in a single room, each until all clients have it.
    AtATime(u32),
}

/// Rooms of a push server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chat {
    /// How many rooms.
    pub rooms: u32,
    /// Speakers in each room.
    pub speakers: u32,
    /// How clients listen.
    pub carrier: Listening,
    /// Clients that never read.
    pub slow: u32,
    /// The rate of messages.
    pub said: Said,
    /// Clients a second that drop their connection and reconnect.
    pub churn: u64,
    /// Bytes of a message.
    pub size: usize,
}

impl Chat {
    /// Messages published a second in all rooms, given the rate of received messages: each goes to
    /// all clients of its room.
    pub fn published_per_second(&self, rate: u64, clients: u32) -> u64 {
        (rate * u64::from(self.rooms))
            .div_ceil(u64::from(clients))
            .max(1)
    }
}

/// The state of a connection while it is idle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Held {
    /// Connected only.
    #[default]
    Open,
    /// HTTP keep-alive after one request.
    Http,
    /// A WebSocket.
    WebSocket,
    /// An event stream.
    Events,
}

/// The commands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Echoed messages in a closed loop.
    Echo {
        /// The messages.
        message: Message,
        /// Messages in flight on a connection.
        depth: usize,
        /// Their carrier.
        carrier: Carrier,
    },
    /// Echoed messages at a rate.
    MessagesAtRate {
        /// The messages.
        message: Message,
        /// Messages a second.
        rate: u64,
        /// The backend port if a proxy is tested; `None`: the server itself echoes.
        backend: Option<u16>,
    },
    /// HTTP requests at a rate.
    RequestsAtRate {
        /// Requests a second.
        rate: u64,
    },
    /// HTTP requests in a closed loop.
    Http {
        /// Requests in flight on a connection.
        depth: usize,
    },
    /// Messages that a backend in the driver echoes, through a proxy.
    Proxy {
        /// The messages.
        message: Message,
        /// Messages in flight on a connection.
        depth: usize,
        /// Port of the backend; 0 takes a free one.
        backend: u16,
    },
    /// Connections with one request each.
    Accept {
        /// The backend port if a proxy is tested; `None`: the server itself answers.
        backend: Option<u16>,
        /// The ClientHello to send instead of an HTTP request.
        hello: Option<Hello>,
    },
    /// Answers to the ticks of a game.
    Game,
    /// Idle connections.
    Idle {
        /// The state of the connections.
        held: Held,
        /// The path of the request.
        path: String,
        /// The backend port if a proxy is tested, for plain connections; `None`: the server itself
        /// holds them.
        backend: Option<u16>,
    },
    /// Listeners that receive broadcasts.
    Fanout {
        /// Bytes of a message.
        size: usize,
        /// Connections that never read.
        slow: u32,
        /// The protocol of the broadcasts.
        broadcast: Broadcast,
    },
    /// Listeners and speakers in rooms.
    Chat(Chat),
    /// A stream from the server.
    Download {
        /// The backend port if a proxy is tested; `None`: the server itself sends.
        backend: Option<u16>,
    },
    /// A stream to the server.
    Upload {
        /// The backend port if a proxy is tested; `None`: the server itself receives.
        backend: Option<u16>,
    },
}
