//! Bytes in one direction: the services discard of RFC 863 and chargen of RFC 864, the latter 64 KiB at a time and
//! without the pattern.

use std::os::fd::OwnedFd;

use rustix::io::Result;

use super::server::{Next, Service};
use crate::poller::{Event, Interest, Poller, Token};
use crate::socket::{READS_PER_EVENT, Received, SCRATCH_BYTES, receive, scratch, send};

/// Receives and drops.
#[derive(Debug)]
pub struct Discard {
    scratch: Box<[u8]>,
}

/// Sends without end.
#[derive(Debug)]
pub struct Chargen {
    bytes: Box<[u8]>,
}

impl Discard {
    /// The service, with its scratch buffer.
    pub fn new() -> Self {
        Self { scratch: scratch() }
    }
}

impl Default for Discard {
    fn default() -> Self {
        Self::new()
    }
}

impl Chargen {
    /// The service, with the bytes that it sends.
    pub fn new() -> Self {
        Self {
            bytes: vec![b'c'; SCRATCH_BYTES].into_boxed_slice(),
        }
    }
}

impl Default for Chargen {
    fn default() -> Self {
        Self::new()
    }
}

impl Service for Discard {
    type Connection = OwnedFd;

    fn accepted(
        &mut self,
        socket: OwnedFd,
        token: Token,
        poller: &Poller,
    ) -> Result<Option<OwnedFd>> {
        poller.add(&socket, token, Interest::Read)?;
        Ok(Some(socket))
    }

    fn ready(&mut self, socket: &mut OwnedFd, event: Event, poller: &Poller) -> Result<Next> {
        for _ in 0..READS_PER_EVENT {
            match receive(&*socket, &mut self.scratch)? {
                Received::Bytes(length) => {
                    if length < self.scratch.len() && !event.readiness.closing() {
                        return Ok(Next::Keep);
                    }
                }
                Received::Nothing => return Ok(Next::Keep),
                Received::End => return Ok(Next::Close),
            }
        }
        poller.rearm(&*socket, event.token, Interest::Read)?;
        Ok(Next::Keep)
    }
}

impl Service for Chargen {
    type Connection = OwnedFd;

    fn accepted(
        &mut self,
        socket: OwnedFd,
        token: Token,
        poller: &Poller,
    ) -> Result<Option<OwnedFd>> {
        poller.add(&socket, token, Interest::ReadWrite)?;
        Ok(Some(socket))
    }

    fn ready(&mut self, socket: &mut OwnedFd, event: Event, poller: &Poller) -> Result<Next> {
        // The client has closed; its data is never read.
        if event.readiness.closing() {
            return Ok(Next::Close);
        }
        for _ in 0..READS_PER_EVENT {
            if send(&*socket, &self.bytes)? < self.bytes.len() {
                return Ok(Next::Keep);
            }
        }
        poller.rearm(&*socket, event.token, Interest::ReadWrite)?;
        Ok(Next::Keep)
    }
}
