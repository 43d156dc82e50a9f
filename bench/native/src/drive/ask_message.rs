//! Echoed messages as requests of an open loop.

use std::os::fd::OwnedFd;

use super::measurement::{Fault, Measurement};
use super::open_loop::Dialogue;
use super::pattern::{Message, Pattern, Position};
use super::transport::{Turn, read};
use crate::poller::Readiness;
use crate::socket::send;

/// The messages.
#[derive(Debug)]
pub struct AskMessage {
    pattern: Pattern,
}

/// The positions in both directions of a connection.
#[derive(Debug)]
pub struct Stream {
    id: u32,
    sent: Position,
    received: Position,
}

impl AskMessage {
    /// Messages of this kind.
    pub fn new(message: Message) -> Self {
        Self {
            pattern: Pattern::new(message.frame, message.size, 1),
        }
    }
}

impl Dialogue for AskMessage {
    type State = Stream;

    fn open(&self, index: u32) -> Stream {
        Stream {
            id: index,
            sent: Position::default(),
            received: Position::default(),
        }
    }

    #[inline]
    fn ask(&mut self, stream: &mut Stream, socket: &OwnedFd) -> Result<(), Fault> {
        self.go_on(stream, socket)
    }

    #[inline]
    fn go_on(&mut self, stream: &mut Stream, socket: &OwnedFd) -> Result<(), Fault> {
        let message = stream.received.message;
        if stream.sent.message == message {
            let bytes = self.pattern.bytes(stream.id, stream.sent, message + 1);
            let sent = send(socket, bytes)?;
            stream.sent = stream.sent.after(sent, self.pattern.length());
        }
        Ok(())
    }

    #[inline]
    fn receive(
        &mut self,
        stream: &mut Stream,
        socket: &OwnedFd,
        readiness: Readiness,
        scratch: &mut [u8],
        measurement: &mut Measurement,
    ) -> Result<(Turn, bool), Fault> {
        let before = stream.received.message;
        let turn = read(socket, readiness, scratch, |bytes| {
            let is_right = self.pattern.verify(stream.id, &mut stream.received, bytes);
            // Bytes beyond those that were sent are wrong, even if they match the pattern.
            if !is_right || stream.received > stream.sent {
                return Err(Fault::Mismatch);
            }
            measurement.transferred(bytes.len());
            Ok(())
        })?;
        Ok((turn, stream.received.message > before))
    }
}
