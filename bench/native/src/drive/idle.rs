//! Connections that are held open without traffic.

use super::measurement::{Fault, Measurement};
use super::protocol::{Connection, Protocol};
use super::transport::{Transport, Turn, read};
use crate::poller::Readiness;
use crate::socket::scratch;

/// The protocol of idle connections.
#[derive(Debug)]
pub struct Idle<T> {
    transport: T,
    scratch: Box<[u8]>,
}

impl<T> Idle<T> {
    /// Opens connections with `transport`. Bytes that the server sends anyway go into a buffer.
    pub fn new(transport: T) -> Self {
        Self {
            transport,
            scratch: scratch(),
        }
    }
}

impl<T: Transport> Protocol for Idle<T> {
    type State = T::Channel;

    fn open(&mut self, _index: u32) -> T::Channel {
        self.transport.open()
    }

    fn greet(
        &mut self,
        connection: &mut Connection<T::Channel>,
        readiness: Readiness,
    ) -> Result<bool, Fault> {
        let Connection { socket, state, .. } = connection;
        self.transport
            .greet(state, socket, readiness, &mut self.scratch)
    }

    fn start(&mut self, _: &mut Connection<T::Channel>, _: &mut Measurement) -> Result<(), Fault> {
        Ok(())
    }

    fn ready(
        &mut self,
        connection: &mut Connection<T::Channel>,
        readiness: Readiness,
        _: &mut Measurement,
    ) -> Result<Turn, Fault> {
        if !readiness.readable() {
            return Ok(Turn::Done);
        }
        // Pings and heartbeats are ignored.
        read(&connection.socket, readiness, &mut self.scratch, |_| Ok(()))
    }
}
