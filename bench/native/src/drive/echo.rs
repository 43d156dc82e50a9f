//! Sends messages and waits for them to come back, byte for byte. The `proxy` command says the same words.

use super::fleet::{Connection, Protocol, Turn, read};
use super::measurement::{Fault, Measurement};
use super::pattern::{Pattern, Position};
use crate::clock;
use crate::poller::Readiness;
use crate::socket::{scratch, send};

/// The echo protocol.
#[derive(Debug)]
pub struct Echo {
    pattern: Pattern,
    size: usize,
    depth: usize,
    /// When each message that is on its way was sent: `depth` places for each connection, used in turn.
    sent_at: Vec<u64>,
    scratch: Box<[u8]>,
}

/// The two ends of a connection's stream.
#[derive(Debug)]
pub struct Stream {
    id: u32,
    /// Messages that are sent or about to be.
    queued: u64,
    sent: Position,
    received: Position,
}

impl Echo {
    /// Messages of `size` bytes, on each of `connections` up to `depth` at the same time.
    pub fn new(size: usize, depth: usize, connections: u32) -> Self {
        Self {
            pattern: Pattern::new(size, depth),
            size,
            depth,
            sent_at: vec![0; connections as usize * depth],
            scratch: scratch(),
        }
    }

    /// Queues messages until `depth` are on their way, and sends them.
    #[inline]
    fn fill(&mut self, connection: &mut Connection<Stream>, now: u64) -> Result<(), Fault> {
        let stream = &mut connection.state;
        let until = stream.received.message + self.depth as u64;
        for message in stream.queued..until {
            self.sent_at[place(stream.id, self.depth, message)] = now;
        }
        stream.queued = until;
        connection.waiting_since =
            self.sent_at[place(stream.id, self.depth, until - self.depth as u64)];
        self.write(connection)
    }

    #[inline]
    fn write(&mut self, connection: &mut Connection<Stream>) -> Result<(), Fault> {
        let stream = &mut connection.state;
        let bytes = self.pattern.bytes(stream.id, stream.sent, stream.queued);
        let sent = send(&connection.socket, bytes)?;
        if sent == bytes.len() {
            stream.sent = Position {
                message: stream.queued,
                offset: 0,
            };
        } else {
            let offset = stream.sent.offset + sent;
            stream.sent.message += (offset / self.size) as u64;
            stream.sent.offset = offset % self.size;
        }
        Ok(())
    }
}

#[inline]
fn place(id: u32, depth: usize, message: u64) -> usize {
    if depth == 1 {
        return id as usize;
    }
    id as usize * depth + (message % depth as u64) as usize
}

impl Protocol for Echo {
    type State = Stream;

    fn open(&mut self, index: u32) -> Stream {
        Stream {
            id: index,
            queued: 0,
            sent: Position::default(),
            received: Position::default(),
        }
    }

    fn start(
        &mut self,
        connection: &mut Connection<Stream>,
        _: &mut Measurement,
    ) -> Result<(), Fault> {
        self.fill(connection, clock::now())
    }

    #[inline]
    fn ready(
        &mut self,
        connection: &mut Connection<Stream>,
        readiness: Readiness,
        measurement: &mut Measurement,
    ) -> Result<Turn, Fault> {
        if connection.state.sent.message < connection.state.queued && readiness.writable() {
            self.write(connection)?;
        }
        if !readiness.readable() {
            return Ok(Turn::Done);
        }
        let stream = &mut connection.state;
        let before = stream.received.message;
        let mut now = 0;
        let turn = read(&connection.socket, readiness, &mut self.scratch, |bytes| {
            now = clock::now();
            let first = stream.received.message;
            let is_right = self.pattern.verify(stream.id, &mut stream.received, bytes);
            // Past what was sent, even right bytes were never asked for.
            if !is_right
                || (stream.received.message, stream.received.offset)
                    > (stream.sent.message, stream.sent.offset)
            {
                return Err(Fault::Mismatch);
            }
            measurement.received(bytes.len());
            for message in first..stream.received.message {
                let sent_at = self.sent_at[place(stream.id, self.depth, message)];
                measurement.completed_in(now - sent_at);
            }
            Ok(())
        })?;
        if stream.received.message > before {
            self.fill(connection, now)?;
        }
        Ok(turn)
    }
}
