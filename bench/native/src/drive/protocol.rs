//! The interface of commands that keep their connections.

use std::os::fd::OwnedFd;

use rustix::io::Errno;

use super::measurement::{Fault, Measurement};
use super::target::Target;
use super::transport::Turn;
use crate::connections::Connections;
use crate::poller::Readiness;

/// What happens on a connection.
pub trait Protocol {
    /// The protocol's state of a connection.
    type State;

    /// Starts to connect the connection with this index.
    fn dial(&self, target: &Target, index: u32) -> Result<OwnedFd, Errno> {
        target.dial(index)
    }

    /// The state of a new connection.
    fn open(&mut self, index: u32) -> Self::State;

    /// Performs the handshake before a connection counts as open, and returns whether it is
    /// complete.
    fn greet(
        &mut self,
        _connection: &mut Connection<Self::State>,
        _readiness: Readiness,
    ) -> Result<bool, Fault> {
        Ok(true)
    }

    /// Sends the first bytes, once all connections are open.
    fn start(
        &mut self,
        connection: &mut Connection<Self::State>,
        measurement: &mut Measurement,
    ) -> Result<(), Fault>;

    /// Serves a connection that is ready. Unsolicited data of the server may arrive before
    /// [`start`](Self::start).
    fn ready(
        &mut self,
        connection: &mut Connection<Self::State>,
        readiness: Readiness,
        measurement: &mut Measurement,
    ) -> Result<Turn, Fault>;

    /// When [`tick`](Self::tick) is due next, by [`clock::now`]; `None` without timed work.
    fn deadline(&self) -> Option<u64> {
        None
    }

    /// Does the work that is due at `now`. It must count and remove connections that fail.
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
    /// When the oldest unanswered request was sent; 0 without one. Timeouts are based on it.
    pub waiting_since: u64,
    /// The protocol's state.
    pub state: S,
    /// Whether it counts as open.
    pub(super) is_connected: bool,
}
