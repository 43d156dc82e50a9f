//! What a run is: the command, and how much load it offers. A value.

use std::time::Duration;

use super::client_hello::Hello;
use super::pattern::Message;
use super::target::Target;

/// A run: what is said, and how much of it.
#[derive(Debug, PartialEq, Eq)]
pub struct Run {
    /// What is said.
    pub command: Command,
    /// How much of it.
    pub load: Load,
}

/// The options that all commands share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Load {
    /// The server under test.
    pub target: Target,
    /// Connections at the same time.
    pub connections: u32,
    /// Most connections that are opened a second, where the driver's own rate is not meant.
    pub connect_rate: Option<u64>,
    /// Time under load before the window.
    pub warmup: Duration,
    /// Length of the measured window.
    pub duration: Duration,
    /// Bytes after which the window ends before its time.
    pub most_bytes: Option<u64>,
    /// Longest wait for a connection or a reply.
    pub timeout: Duration,
    /// The server's processes.
    pub observe: Vec<u32>,
    /// Whether to tell each second how it goes.
    pub progress: bool,
}

/// What carries messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Carrier {
    /// The connection itself.
    #[default]
    Plain,
    /// TLS on it.
    Tls,
    /// Frames of WebSocket.
    WebSocket,
}

/// What carries the messages of a broadcast.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Broadcast {
    /// The connection itself.
    #[default]
    Bytes,
    /// Frames of WebSocket.
    WebSocket,
    /// Events of an event stream.
    Events,
}

/// How clients listen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Listening {
    /// By a long poll after the other.
    #[default]
    Poll,
    /// The same, and an answer may have several messages.
    Several,
    /// To an event stream.
    Events,
    /// On a WebSocket.
    WebSocket,
}

/// How much is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Said {
    /// Messages that clients are to get a second, in all.
    Rate(u64),
    /// So many in the one room are on their way at the same time, each until all clients have it.
    AtATime(u32),
}

/// Rooms of a push server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chat {
    /// How many rooms.
    pub rooms: u32,
    /// Who speak in each of them.
    pub speakers: u32,
    /// How clients listen.
    pub carrier: Listening,
    /// Clients that never read.
    pub slow: u32,
    /// How much is said.
    pub said: Said,
    /// Clients that drop their connection and come back, a second.
    pub churn: u64,
    /// Bytes of a message.
    pub size: usize,
}

impl Chat {
    /// Messages that are said a second, in all rooms, where clients are to get so many: each is for all clients of its room.
    pub fn published_per_second(&self, rate: u64, clients: u32) -> u64 {
        (rate * u64::from(self.rooms))
            .div_ceil(u64::from(clients))
            .max(1)
    }
}

/// What a connection is before it falls silent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Held {
    /// Open, and no more.
    #[default]
    Open,
    /// One of HTTP on which a request was answered.
    Http,
    /// A WebSocket.
    WebSocket,
    /// An event stream.
    Events,
}

/// The commands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Messages that come back.
    Echo {
        /// What is sent.
        message: Message,
        /// Messages on their way at the same time.
        depth: usize,
        /// What carries them.
        carrier: Carrier,
    },
    /// Messages that come back, at a rate.
    MessagesAtRate {
        /// What is sent.
        message: Message,
        /// Messages a second.
        rate: u64,
        /// As of a proxy; `None`: the server itself sends them back.
        backend: Option<u16>,
    },
    /// Requests of HTTP, at a rate.
    RequestsAtRate {
        /// Requests a second.
        rate: u64,
    },
    /// Requests of HTTP.
    Http {
        /// Requests on their way at the same time.
        depth: usize,
    },
    /// Messages that come back, through a proxy to a backend in the driver.
    Proxy {
        /// What is sent.
        message: Message,
        /// Messages on their way at the same time.
        depth: usize,
        /// Port of the backend; 0 takes a free one.
        backend: u16,
    },
    /// Connections with one request each.
    Accept {
        /// As of a proxy; `None`: the server itself answers.
        backend: Option<u16>,
        /// What is sent instead of a request of HTTP.
        hello: Option<Hello>,
    },
    /// Answers to the ticks of a game.
    Game,
    /// Connections on which nothing is said.
    Idle {
        /// What the connections are.
        held: Held,
        /// What is asked for.
        path: String,
        /// As of a proxy, for connections that are open and no more; `None`: they are the server's own.
        backend: Option<u16>,
    },
    /// Listeners to broadcasts.
    Fanout {
        /// Bytes of a message.
        size: usize,
        /// Connections that never read.
        slow: u32,
        /// What carries the messages.
        broadcast: Broadcast,
    },
    /// Listeners and speakers in rooms.
    Chat(Chat),
    /// A stream from the server.
    Download {
        /// As of a proxy; `None`: from the server itself.
        backend: Option<u16>,
    },
    /// A stream to the server.
    Upload {
        /// As of a proxy; `None`: to the server itself.
        backend: Option<u16>,
    },
}
