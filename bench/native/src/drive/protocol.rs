//! What the commands that keep their connections have to say, connection by connection.

use std::os::fd::OwnedFd;

use rustix::io::Errno;

use super::measurement::{Fault, Measurement};
use super::target::Target;
use super::transport::Turn;
use crate::connections::Connections;
use crate::poller::Readiness;

/// What is said on a connection.
pub trait Protocol {
    /// What the protocol keeps for a connection.
    type State;

    /// Begins the connection of this index.
    fn dial(&self, target: &Target, index: u32) -> Result<OwnedFd, Errno> {
        target.dial(index)
    }

    /// The state of a new connection.
    fn open(&mut self, index: u32) -> Self::State;

    /// Says what has to be said before a connection counts as open, and returns whether it does.
    fn greet(
        &mut self,
        _connection: &mut Connection<Self::State>,
        _readiness: Readiness,
    ) -> Result<bool, Fault> {
        Ok(true)
    }

    /// Says the first word, once all connections are open.
    fn start(
        &mut self,
        connection: &mut Connection<Self::State>,
        measurement: &mut Measurement,
    ) -> Result<(), Fault>;

    /// Serves a connection that is ready. What the server sends unasked may come before [`start`](Self::start).
    fn ready(
        &mut self,
        connection: &mut Connection<Self::State>,
        readiness: Readiness,
        measurement: &mut Measurement,
    ) -> Result<Turn, Fault>;

    /// When [`tick`](Self::tick) is wanted next, by [`clock::now`], of a protocol that does something by time.
    fn deadline(&self) -> Option<u64> {
        None
    }

    /// Does what is due at `now`. A connection that fails is to be counted and taken out.
    fn tick(
        &mut self,
        _connections: &mut Connections<Connection<Self::State>>,
        _now: u64,
        _measurement: &mut Measurement,
    ) {
    }
}

/// A connection to the server under test.
#[derive(Debug)]
pub struct Connection<S> {
    /// Its socket.
    pub socket: OwnedFd,
    /// When the oldest request without a reply was sent; 0 while there is none. It is what timeouts are taken from.
    pub waiting_since: u64,
    /// What the protocol keeps.
    pub state: S,
    /// Whether it counts as open.
    pub(super) is_connected: bool,
}
