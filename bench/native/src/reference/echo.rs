//! Echoes bytes.

use std::os::fd::OwnedFd;

use rustix::io::Result;

use super::server::{Next, Service};
use crate::poller::{Event, Interest, Poller, Token};
use crate::socket::{READS_PER_EVENT, Received, receive, scratch, send};

/// The echo service.
#[derive(Debug)]
pub struct Echo {
    scratch: Box<[u8]>,
}

/// A client of the echo service.
#[derive(Debug)]
pub struct Client {
    socket: OwnedFd,
    /// Bytes that the kernel has not taken yet. The socket is not read until they are sent, so
    /// this is at most one scratch buffer.
    pending: Vec<u8>,
}

impl Echo {
    /// The service, with its scratch buffer.
    pub fn new() -> Self {
        Self { scratch: scratch() }
    }
}

impl Default for Echo {
    fn default() -> Self {
        Self::new()
    }
}

impl Service for Echo {
    type Connection = Client;

    fn accepted(
        &mut self,
        socket: OwnedFd,
        token: Token,
        poller: &Poller,
    ) -> Result<Option<Client>> {
        poller.add(&socket, token, Interest::ReadWrite)?;
        let pending = Vec::new();
        Ok(Some(Client { socket, pending }))
    }

    #[inline]
    fn ready(&mut self, client: &mut Client, event: Event, poller: &Poller) -> Result<Next> {
        if !client.pending.is_empty() {
            let sent = send(&client.socket, &client.pending)?;
            if sent < client.pending.len() {
                client.pending.drain(..sent);
                return Ok(Next::Keep);
            }
            client.pending = Vec::new();
        } else if !event.readiness.readable() {
            return Ok(Next::Keep);
        }
        for _ in 0..READS_PER_EVENT {
            let length = match receive(&client.socket, &mut self.scratch)? {
                Received::Bytes(length) => length,
                Received::Nothing => return Ok(Next::Keep),
                Received::End => return Ok(Next::Close),
            };
            let sent = send(&client.socket, &self.scratch[..length])?;
            if sent < length {
                client
                    .pending
                    .extend_from_slice(&self.scratch[sent..length]);
                return Ok(Next::Keep);
            }
            if length < self.scratch.len() && !event.readiness.closing() {
                return Ok(Next::Keep);
            }
        }
        poller.rearm(&client.socket, event.token, Interest::ReadWrite)?;
        Ok(Next::Keep)
    }
}
