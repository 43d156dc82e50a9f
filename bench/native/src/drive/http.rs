//! HTTP/1.1 keep-alive: the next GETs are sent when the responses to the previous ones are
//! complete.

use super::measurement::{Fault, Measurement};
use super::protocol::{Connection, Protocol};
use super::response::{Progress, ResponseReader};
use super::target::Target;
use super::transport::{Turn, read};
use crate::clock;
use crate::poller::Readiness;
use crate::socket::{scratch, send};

/// The HTTP protocol.
#[derive(Debug)]
pub struct Http {
    /// The bytes of `depth` pipelined requests.
    requests: Vec<u8>,
    depth: usize,
    scratch: Box<[u8]>,
}

/// The state of a connection's request and response.
#[derive(Debug, Default)]
pub struct Exchange {
    reader: ResponseReader,
    /// Bytes of the requests that are still to be sent.
    unsent: usize,
    /// Outstanding responses.
    missing: usize,
}

impl Http {
    /// Requests to a server at `target`, `depth` at a time.
    pub fn new(target: &Target, depth: usize) -> Self {
        Self {
            requests: format!("GET / HTTP/1.1\r\nHost: {target}\r\n\r\n")
                .repeat(depth)
                .into_bytes(),
            depth,
            scratch: scratch(),
        }
    }

    #[inline]
    fn ask(&self, connection: &mut Connection<Exchange>, now: u64) -> Result<(), Fault> {
        connection.waiting_since = now;
        connection.state.unsent = self.requests.len();
        connection.state.missing = self.depth;
        self.write(connection)
    }

    #[inline]
    fn write(&self, connection: &mut Connection<Exchange>) -> Result<(), Fault> {
        let start = self.requests.len() - connection.state.unsent;
        connection.state.unsent -= send(&connection.socket, &self.requests[start..])?;
        Ok(())
    }
}

impl Protocol for Http {
    type State = Exchange;

    fn open(&mut self, _index: u32) -> Exchange {
        Exchange::default()
    }

    fn start(
        &mut self,
        connection: &mut Connection<Exchange>,
        _: &mut Measurement,
    ) -> Result<(), Fault> {
        self.ask(connection, clock::now())
    }

    #[inline]
    fn ready(
        &mut self,
        connection: &mut Connection<Exchange>,
        readiness: Readiness,
        measurement: &mut Measurement,
    ) -> Result<Turn, Fault> {
        if connection.state.unsent > 0 && readiness.writable() {
            self.write(connection)?;
        }
        if !readiness.readable() {
            return Ok(Turn::Done);
        }
        let mut answered_at = None;
        let sent_at = connection.waiting_since;
        let Exchange {
            reader, missing, ..
        } = &mut connection.state;
        let turn = read(
            &connection.socket,
            readiness,
            &mut self.scratch,
            |mut bytes| {
                // No bytes may arrive before the requests or after the answers.
                if answered_at.is_some() || sent_at == 0 {
                    return Err(Fault::BadResponse);
                }
                let now = clock::now();
                measurement.transferred(bytes.len());
                while let Progress::Complete { status, rest } = reader.read(bytes)? {
                    *missing -= 1;
                    if (200..300).contains(&status) {
                        measurement.completed_in(now - sent_at);
                    } else {
                        measurement.failed(Fault::Status);
                    }
                    match (*missing, rest) {
                        (0, 0) => answered_at = Some(now),
                        (0, _) => return Err(Fault::BadResponse),
                        (_, 0) => {}
                        _ => {
                            bytes = &bytes[bytes.len() - rest..];
                            continue;
                        }
                    }
                    break;
                }
                Ok(())
            },
        )?;
        if let Some(now) = answered_at {
            self.ask(connection, now)?;
        }
        Ok(turn)
    }
}
