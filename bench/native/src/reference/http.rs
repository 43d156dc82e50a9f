//! HTTP/1.1 keep-alive with one fixed answer.

use std::os::fd::OwnedFd;

use rustix::io::Result;

use super::server::{Next, Service};
use crate::poller::{Event, Interest, Poller, Token};
use crate::socket::{READS_PER_EVENT, Received, receive, scratch, send};

const RESPONSE: &[u8] =
    b"HTTP/1.1 200 OK\r\nContent-Length: 12\r\nConnection: Keep-Alive\r\n\r\nhello world!";

/// Most responses in one send, for clients that pipeline.
const RESPONSES_PER_SEND: usize = 64;

/// The end of a request head. Requests with a body are not supported.
const END_OF_HEAD: &[u8] = b"\r\n\r\n";

/// The HTTP service.
#[derive(Debug)]
pub struct Http {
    scratch: Box<[u8]>,
    responses: Vec<u8>,
}

/// A client of the HTTP service.
#[derive(Debug)]
pub struct Client {
    socket: OwnedFd,
    heads: HeadCounter,
    /// Unsent bytes of responses. All responses are equal, so their number is enough. The socket
    /// is not read until it is 0.
    owed: usize,
}

/// Counts request heads in a stream that may be cut anywhere.
#[derive(Debug, Default)]
pub(super) struct HeadCounter {
    /// How many bytes of [`END_OF_HEAD`] end the stream so far.
    matched: usize,
}

impl HeadCounter {
    #[inline]
    pub(super) fn count(&mut self, bytes: &[u8]) -> usize {
        let mut heads = 0;
        let mut matched = self.matched;
        for &byte in bytes {
            if byte == END_OF_HEAD[matched] {
                matched += 1;
                if matched == END_OF_HEAD.len() {
                    heads += 1;
                    matched = 0;
                }
            } else {
                matched = usize::from(byte == b'\r');
            }
        }
        self.matched = matched;
        heads
    }
}

impl Http {
    /// The service, with its scratch buffer.
    pub fn new() -> Self {
        Self {
            scratch: scratch(),
            responses: RESPONSE.repeat(RESPONSES_PER_SEND),
        }
    }
}

impl Default for Http {
    fn default() -> Self {
        Self::new()
    }
}

impl Client {
    /// Sends responses until the kernel takes no more.
    #[inline]
    fn pay(&mut self, responses: &[u8]) -> Result<()> {
        while self.owed > 0 {
            // Responses are added whole, so the remainder is the unsent part of the current one.
            let start = (RESPONSE.len() - self.owed % RESPONSE.len()) % RESPONSE.len();
            let length = self.owed.min(responses.len() - start);
            let sent = send(&self.socket, &responses[start..start + length])?;
            self.owed -= sent;
            if sent < length {
                break;
            }
        }
        Ok(())
    }
}

impl Service for Http {
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
        }))
    }

    #[inline]
    fn ready(&mut self, client: &mut Client, event: Event, poller: &Poller) -> Result<Next> {
        if client.owed > 0 {
            client.pay(&self.responses)?;
            if client.owed > 0 {
                return Ok(Next::Keep);
            }
        } else if !event.readiness.readable() {
            return Ok(Next::Keep);
        }
        for _ in 0..READS_PER_EVENT {
            let length = match receive(&client.socket, &mut self.scratch)? {
                Received::Bytes(length) => length,
                Received::Nothing => return Ok(Next::Keep),
                Received::End => return Ok(Next::Close),
            };
            client.owed = client.heads.count(&self.scratch[..length]) * RESPONSE.len();
            client.pay(&self.responses)?;
            let is_drained = length < self.scratch.len() && !event.readiness.closing();
            if client.owed > 0 || is_drained {
                return Ok(Next::Keep);
            }
        }
        poller.rearm(&client.socket, event.token, Interest::ReadWrite)?;
        Ok(Next::Keep)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_counted_however_the_stream_is_cut() {
        let stream =
            b"GET / HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\n\r\nGET /\r\r\n\r\n\r\nrest";
        let whole = HeadCounter::default().count(stream);
        assert_eq!(whole, 3);
        for first in 0..stream.len() {
            for second in first..stream.len() {
                let mut counter = HeadCounter::default();
                let counted = counter.count(&stream[..first])
                    + counter.count(&stream[first..second])
                    + counter.count(&stream[second..]);
                assert_eq!(counted, whole, "cut at {first} and {second}");
            }
        }
    }

    #[test]
    fn the_response_tells_its_own_length() {
        assert!(RESPONSE.ends_with(b"\r\n\r\nhello world!"));
        assert_eq!(b"hello world!".len(), 12);
    }
}
