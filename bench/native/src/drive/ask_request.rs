//! HTTP requests of an open loop.

use std::os::fd::OwnedFd;

use super::measurement::{Fault, Measurement};
use super::open_loop::Dialogue;
use super::response::{Progress, ResponseReader};
use super::target::Target;
use super::transport::{Turn, read};
use crate::poller::Readiness;
use crate::socket::send;

/// The requests.
#[derive(Debug)]
pub struct AskRequest {
    request: Vec<u8>,
}

/// The request and the response of a connection.
#[derive(Debug, Default)]
pub struct Exchange {
    /// Bytes of the request that are still to be sent.
    unsent: usize,
    is_waiting: bool,
    reader: ResponseReader,
}

impl AskRequest {
    /// Requests to a server at `target`.
    pub fn new(target: &Target) -> Self {
        Self {
            request: format!("GET / HTTP/1.1\r\nHost: {target}\r\n\r\n").into_bytes(),
        }
    }
}

impl Dialogue for AskRequest {
    type State = Exchange;

    fn open(&self, _index: u32) -> Exchange {
        Exchange::default()
    }

    #[inline]
    fn ask(&mut self, exchange: &mut Exchange, socket: &OwnedFd) -> Result<(), Fault> {
        exchange.unsent = self.request.len();
        exchange.is_waiting = true;
        self.go_on(exchange, socket)
    }

    #[inline]
    fn go_on(&mut self, exchange: &mut Exchange, socket: &OwnedFd) -> Result<(), Fault> {
        if exchange.unsent > 0 {
            let start = self.request.len() - exchange.unsent;
            exchange.unsent -= send(socket, &self.request[start..])?;
        }
        Ok(())
    }

    #[inline]
    fn receive(
        &mut self,
        exchange: &mut Exchange,
        socket: &OwnedFd,
        readiness: Readiness,
        scratch: &mut [u8],
        measurement: &mut Measurement,
    ) -> Result<(Turn, bool), Fault> {
        let was_waiting = exchange.is_waiting;
        let turn = read(socket, readiness, scratch, |bytes| {
            // No bytes may arrive before the request or after the answer.
            if !exchange.is_waiting {
                return Err(Fault::BadResponse);
            }
            measurement.transferred(bytes.len());
            match exchange.reader.read(bytes)? {
                Progress::Complete {
                    status: 200..300,
                    rest: 0,
                } => exchange.is_waiting = false,
                Progress::Complete { rest: 0, .. } => return Err(Fault::Status),
                Progress::Complete { .. } => return Err(Fault::BadResponse),
                Progress::Incomplete => {}
            }
            Ok(())
        })?;
        Ok((turn, was_waiting && !exchange.is_waiting))
    }
}
