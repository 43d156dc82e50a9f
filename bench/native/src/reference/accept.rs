//! One request and one reply on each connection.

use std::os::fd::OwnedFd;

use rustix::io::Result;

use super::server::{Next, Service};
use crate::poller::{Event, Interest, Poller, Token};
use crate::socket::{Received, receive, scratch, send};

const REPLY: &[u8] = b"ok";

/// The service of short connections. The client closes, so the server keeps no TIME_WAIT.
#[derive(Debug)]
pub struct Accept {
    scratch: Box<[u8]>,
}

/// A client that sends one request.
#[derive(Debug)]
pub struct Client {
    socket: OwnedFd,
    is_answered: bool,
}

impl Accept {
    /// The service, with its scratch buffer.
    pub fn new() -> Self {
        Self { scratch: scratch() }
    }

    /// Reads, and answers once: a client has one request, and further bytes are dropped.
    fn serve(&mut self, client: &mut Client) -> Result<Received> {
        let received = receive(&client.socket, &mut self.scratch)?;
        if matches!(received, Received::Bytes(_)) && !client.is_answered {
            client.is_answered = true;
            send(&client.socket, REPLY)?;
        }
        Ok(received)
    }
}

impl Default for Accept {
    fn default() -> Self {
        Self::new()
    }
}

impl Service for Accept {
    type Connection = Client;

    fn accepted(
        &mut self,
        socket: OwnedFd,
        token: Token,
        poller: &Poller,
    ) -> Result<Option<Client>> {
        let mut client = Client {
            socket,
            is_answered: false,
        };
        // Under load the request has arrived by the time of the accept. Answering here saves an
        // event.
        if self.serve(&mut client)? == Received::End {
            return Ok(None);
        }
        poller.add(&client.socket, token, Interest::Read)?;
        Ok(Some(client))
    }

    fn ready(&mut self, client: &mut Client, event: Event, _poller: &Poller) -> Result<Next> {
        if event.readiness.failed() {
            return Ok(Next::Close);
        }
        let received = self.serve(client)?;
        if received == Received::End || event.readiness.closing() {
            return Ok(Next::Close);
        }
        Ok(Next::Keep)
    }
}
