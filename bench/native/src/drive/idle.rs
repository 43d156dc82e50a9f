//! Connections that are held and say nothing.

use super::measurement::{Fault, Measurement};
use super::protocol::{Connection, Protocol};
use super::transport::{Turn, read};
use crate::poller::Readiness;
use crate::socket::scratch;

/// The protocol of silence.
#[derive(Debug)]
pub struct Idle {
    scratch: Box<[u8]>,
}

impl Idle {
    /// The protocol, with the buffer for what a server may say all the same.
    pub fn new() -> Self {
        Self { scratch: scratch() }
    }
}

impl Default for Idle {
    fn default() -> Self {
        Self::new()
    }
}

impl Protocol for Idle {
    type State = ();

    fn open(&mut self, _index: u32) {}

    fn start(&mut self, _: &mut Connection<()>, _: &mut Measurement) -> Result<(), Fault> {
        Ok(())
    }

    fn ready(
        &mut self,
        connection: &mut Connection<()>,
        readiness: Readiness,
        _: &mut Measurement,
    ) -> Result<Turn, Fault> {
        if !readiness.readable() {
            return Ok(Turn::Done);
        }
        read(&connection.socket, readiness, &mut self.scratch, |_| Ok(()))
    }
}
