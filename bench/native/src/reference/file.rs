//! HTTP/1.1 keep-alive that answers with a file, sent by sendfile(2).

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::sendfile;
use rustix::io::{Errno, Result};

use super::http::HeadCounter;
use super::server::{Next, Service};
use crate::poller::{Event, Interest, Poller, Token};
use crate::socket::{Received, receive, scratch, send};

/// The file service.
#[derive(Debug)]
pub struct FileServer {
    file: File,
    length: u64,
    /// The head of the response.
    head: Vec<u8>,
    scratch: Box<[u8]>,
}

/// A client of the file service.
#[derive(Debug)]
pub struct Client {
    socket: OwnedFd,
    heads: HeadCounter,
    /// Responses that are not completely sent.
    owed: usize,
    /// Bytes sent of the first of them, including its head.
    sent: u64,
}

impl FileServer {
    /// Serves the file at `path` with its present length.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let length = file.metadata()?.len();
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n").into_bytes();
        Ok(Self {
            file,
            length,
            head,
            scratch: scratch(),
        })
    }

    /// Sends responses until the kernel takes no more.
    fn pay(&self, client: &mut Client) -> Result<()> {
        let head_length = self.head.len() as u64;
        while client.owed > 0 {
            if client.sent < head_length {
                let rest = &self.head[client.sent as usize..];
                client.sent += send(&client.socket, rest)? as u64;
            }
            let Some(mut offset) = client.sent.checked_sub(head_length) else {
                return Ok(());
            };
            let rest = (self.length - offset) as usize;
            let sent = match sendfile(&client.socket, &self.file, Some(&mut offset), rest) {
                Ok(sent) => sent,
                Err(Errno::AGAIN) => return Ok(()),
                Err(errno) => return Err(errno),
            };
            // The file was truncated: the announced length cannot be sent.
            if sent == 0 && rest > 0 {
                return Err(Errno::IO);
            }
            client.sent += sent as u64;
            if client.sent == head_length + self.length {
                client.sent = 0;
                client.owed -= 1;
            }
        }
        Ok(())
    }
}

impl Service for FileServer {
    type Connection = Client;

    fn accepted(
        &mut self,
        socket: OwnedFd,
        token: Token,
        poller: &Poller,
    ) -> Result<Option<Client>> {
        poller.add(&socket, token, Interest::ReadWrite)?;
        Ok(Some(Client {
            socket,
            heads: HeadCounter::default(),
            owed: 0,
            sent: 0,
        }))
    }

    fn ready(&mut self, client: &mut Client, event: Event, _: &Poller) -> Result<Next> {
        self.pay(client)?;
        // Requests are read only while no response is owed; they stay in the kernel until then.
        while client.owed == 0 {
            let length = match receive(&client.socket, &mut self.scratch)? {
                Received::Bytes(length) => length,
                Received::Nothing => return Ok(Next::Keep),
                Received::End => return Ok(Next::Close),
            };
            client.owed = client.heads.count(&self.scratch[..length]);
            self.pay(client)?;
            if length < self.scratch.len() && !event.readiness.closing() {
                return Ok(Next::Keep);
            }
        }
        Ok(Next::Keep)
    }
}
