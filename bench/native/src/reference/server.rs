//! The event loop that the reference servers share.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use crate::clock::{self, MILLISECOND};
use crate::connections::Connections;
use crate::listener::{Accepted, Listener};
use crate::poller::{Event, Events, Lane, Poller, Token};
use crate::stop::StopSignal;

/// The lane of accepted connections.
pub const CLIENTS: Lane = 1;

/// The lane of connections that a service opens.
pub const BACKENDS: Lane = 2;

/// The lane of the listener and other sources that are not connections.
pub const CONTROL: Lane = 0;

const STOP: Token = Token::new(CONTROL, 0, 0);
const LISTENER: Token = Token::new(CONTROL, 1, 0);

/// Connections accepted for one event of the listener before other events are served.
const ACCEPTS_PER_EVENT: usize = 256;

/// How long the listener pauses when no descriptor is left: its backlog would wake the loop
/// without end.
const REST_WITHOUT_DESCRIPTORS: u64 = 100 * MILLISECOND;

/// How long remaining connections are served after the end of a run.
const LONGEST_SEEING_OUT: u64 = 500 * MILLISECOND;

/// What happens to a connection after its event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// It stays.
    Keep,
    /// It is removed, and its sockets are closed.
    Close,
}

/// The behaviour of a server.
pub trait Service {
    /// The state of a connection. Dropping it closes the socket.
    type Connection;

    /// Takes an accepted socket and registers it with the poller under `token`. `None`: it is
    /// already closed.
    fn accepted(
        &mut self,
        socket: OwnedFd,
        token: Token,
        poller: &Poller,
    ) -> rustix::io::Result<Option<Self::Connection>>;

    /// Serves a socket of a connection that is ready.
    fn ready(
        &mut self,
        connection: &mut Self::Connection,
        event: Event,
        poller: &Poller,
    ) -> rustix::io::Result<Next>;

    /// When [`tick`](Self::tick) is due next, by [`clock::now`]; `None` without timed work.
    fn deadline(&self) -> Option<u64> {
        None
    }

    /// Does the work that is due at `now`.
    fn tick(&mut self, _connections: &mut Connections<Self::Connection>, _now: u64) {}
}

/// A service behind a listener.
#[derive(Debug)]
pub struct Server<S: Service> {
    service: S,
    listener: Listener,
    lane: Lane,
    connections: Connections<S::Connection>,
    /// Set while the listener pauses.
    accept_again_at: Option<u64>,
    has_warned: bool,
}

impl<S: Service> Server<S> {
    /// A server that is not registered with a poller yet.
    pub fn new(service: S, listener: Listener) -> Self {
        Self::in_lane(service, listener, CLIENTS)
    }

    /// As [`new`](Self::new), but its connections have another lane than [`CLIENTS`].
    pub fn in_lane(service: S, listener: Listener, lane: Lane) -> Self {
        Self {
            service,
            listener,
            lane,
            connections: Connections::new(lane),
            accept_again_at: None,
            has_warned: false,
        }
    }

    /// The local port.
    pub fn port(&self) -> u16 {
        self.listener.port()
    }

    /// Starts to accept; the listener's events have `token`.
    pub fn register(&self, poller: &Poller, token: Token) -> rustix::io::Result<()> {
        poller.add(&self.listener, token, crate::poller::Interest::Level)
    }

    /// Serves an event of a connection. If it fails, the connection is closed.
    #[inline]
    pub fn ready(&mut self, event: Event, poller: &Poller) {
        let Some(connection) = self.connections.get_mut(event.token) else {
            return;
        };
        match self.service.ready(connection, event, poller) {
            Ok(Next::Keep) => {}
            Ok(Next::Close) | Err(_) => drop(self.connections.remove(event.token)),
        }
    }

    /// Serves an event of the listener.
    pub fn accept(&mut self, poller: &Poller) -> rustix::io::Result<()> {
        for _ in 0..ACCEPTS_PER_EVENT {
            match self.listener.accept()? {
                Accepted::Connection(socket) => {
                    let token = self.connections.next_token();
                    // A failure concerns only this connection, as in `ready`.
                    if let Ok(Some(connection)) = self.service.accepted(socket, token, poller) {
                        self.connections.insert(connection);
                    }
                }
                Accepted::Nobody => return Ok(()),
                Accepted::NoDescriptor => return self.rest(poller),
            }
        }
        Ok(())
    }

    /// Serves remaining and new connections until there are none, or for a limited time. If
    /// several drivers share the port, connections of their clients arrive here, too.
    pub fn see_out(&mut self, poller: &Poller, listener: Token) -> rustix::io::Result<()> {
        let until = clock::now() + LONGEST_SEEING_OUT;
        let mut events = Events::new();
        while !self.connections.is_empty() && clock::now() < until {
            let left = until.saturating_sub(clock::now());
            poller.wait(&mut events, Some(Duration::from_nanos(left)))?;
            for event in events.iter() {
                if event.token == listener {
                    self.accept(poller)?;
                } else if event.token.lane() == self.lane {
                    self.ready(event, poller);
                }
            }
        }
        Ok(())
    }

    fn rest(&mut self, poller: &Poller) -> rustix::io::Result<()> {
        if !self.has_warned {
            self.has_warned = true;
            eprintln!(
                "out of descriptors after {} connections: others wait in the backlog (raise ulimit -n)",
                self.connections.len()
            );
        }
        self.accept_again_at = Some(clock::now() + REST_WITHOUT_DESCRIPTORS);
        poller.remove(&self.listener)
    }

    fn deadline(&self) -> Option<u64> {
        match (self.service.deadline(), self.accept_again_at) {
            (Some(service), Some(accept)) => Some(service.min(accept)),
            (service, accept) => service.or(accept),
        }
    }

    fn tick(&mut self, poller: &Poller, token: Token) -> rustix::io::Result<()> {
        let now = clock::now();
        if self.service.deadline().is_some_and(|at| at <= now) {
            self.service.tick(&mut self.connections, now);
        }
        if self.accept_again_at.is_some_and(|at| at <= now) {
            self.accept_again_at = None;
            self.register(poller, token)?;
        }
        Ok(())
    }
}

/// Serves until the stop signal, and returns the service with its counters.
pub fn run<S: Service>(mut server: Server<S>, stop: &StopSignal) -> io::Result<S> {
    let poller = Poller::new()?;
    stop.register(&poller, STOP)?;
    server.register(&poller, LISTENER)?;
    let mut events = Events::new();
    loop {
        let deadline = server.deadline();
        let timeout = deadline.map(|at| Duration::from_nanos(at.saturating_sub(clock::now())));
        poller.wait(&mut events, timeout)?;
        for event in events.iter() {
            match event.token {
                STOP => return Ok(server.service),
                LISTENER => server.accept(&poller)?,
                _ => server.ready(event, &poller),
            }
        }
        if deadline.is_some() {
            server.tick(&poller, LISTENER)?;
        }
    }
}
