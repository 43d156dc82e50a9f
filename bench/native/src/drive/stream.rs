//! Bytes in one direction, as fast as possible: `download` receives, `upload` sends.

use super::measurement::{Fault, Measurement};
use super::protocol::{Connection, Protocol};
use super::transport::{Turn, read};
use crate::clock;
use crate::poller::Readiness;
use crate::socket::{READS_PER_EVENT, SCRATCH_BYTES, scratch, send};

/// Receives and drops.
#[derive(Debug)]
pub struct Download {
    scratch: Box<[u8]>,
}

/// Sends 64 KiB at a time.
#[derive(Debug)]
pub struct Upload {
    bytes: Box<[u8]>,
}

impl Download {
    /// The protocol, with its scratch buffer.
    pub fn new() -> Self {
        Self { scratch: scratch() }
    }
}

impl Default for Download {
    fn default() -> Self {
        Self::new()
    }
}

impl Upload {
    /// The protocol, with what it sends.
    pub fn new() -> Self {
        Self {
            bytes: vec![b'u'; SCRATCH_BYTES].into_boxed_slice(),
        }
    }
}

impl Default for Upload {
    fn default() -> Self {
        Self::new()
    }
}

impl Protocol for Download {
    type State = ();

    fn open(&mut self, _index: u32) {}

    fn start(&mut self, connection: &mut Connection<()>, _: &mut Measurement) -> Result<(), Fault> {
        connection.waiting_since = clock::now();
        Ok(())
    }

    fn ready(
        &mut self,
        connection: &mut Connection<()>,
        readiness: Readiness,
        measurement: &mut Measurement,
    ) -> Result<Turn, Fault> {
        if !readiness.readable() {
            return Ok(Turn::Done);
        }
        connection.waiting_since = clock::now();
        read(&connection.socket, readiness, &mut self.scratch, |bytes| {
            measurement.transferred(bytes.len());
            Ok(())
        })
    }
}

impl Protocol for Upload {
    type State = ();

    fn open(&mut self, _index: u32) {}

    /// Nothing to do: an open connection is writable and sends already.
    fn start(&mut self, _: &mut Connection<()>, _: &mut Measurement) -> Result<(), Fault> {
        Ok(())
    }

    fn ready(
        &mut self,
        connection: &mut Connection<()>,
        readiness: Readiness,
        measurement: &mut Measurement,
    ) -> Result<Turn, Fault> {
        // A server that only receives sends nothing; only its close is of interest.
        if readiness.closing() {
            return Err(Fault::Closed);
        }
        if !readiness.writable() {
            return Ok(Turn::Done);
        }
        connection.waiting_since = clock::now();
        for _ in 0..READS_PER_EVENT {
            let sent = send(&connection.socket, &self.bytes)?;
            measurement.transferred(sent);
            if sent < self.bytes.len() {
                return Ok(Turn::Done);
            }
        }
        Ok(Turn::More)
    }
}
