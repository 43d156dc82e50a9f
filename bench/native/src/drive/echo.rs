//! Sends messages and waits until they come back, byte for byte. The `proxy` command does the same
//! through a proxy.

use super::measurement::{Fault, Measurement};
use super::pattern::{Message, Pattern, Position};
use super::protocol::{Connection, Protocol};
use super::transport::{Transport, Turn};
use crate::clock;
use crate::poller::Readiness;
use crate::socket::scratch;

/// The echo protocol.
#[derive(Debug)]
pub struct Echo<T> {
    transport: T,
    pattern: Pattern,
    depth: usize,
    /// Send times of messages in flight: `depth` slots for each connection, used in turn.
    sent_at: Vec<u64>,
    scratch: Box<[u8]>,
}

/// The positions in both directions of a connection.
#[derive(Debug)]
pub struct Stream<C> {
    channel: C,
    id: u32,
    /// Messages that are sent or queued.
    queued: u64,
    sent: Position,
    received: Position,
}

impl<T: Transport> Echo<T> {
    /// Keeps up to `depth` messages in flight on each of `connections`.
    pub fn new(transport: T, message: Message, depth: usize, connections: u32) -> Self {
        Self {
            transport,
            pattern: Pattern::new(message.frame, message.size, depth),
            depth,
            sent_at: vec![0; connections as usize * depth],
            scratch: scratch(),
        }
    }

    /// Queues messages until `depth` are in flight, and sends them.
    #[inline]
    fn fill(
        &mut self,
        connection: &mut Connection<Stream<T::Channel>>,
        now: u64,
    ) -> Result<(), Fault> {
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
    fn write(&mut self, connection: &mut Connection<Stream<T::Channel>>) -> Result<(), Fault> {
        let stream = &mut connection.state;
        let bytes = self.pattern.bytes(stream.id, stream.sent, stream.queued);
        let sent = self
            .transport
            .send(&mut stream.channel, &connection.socket, bytes)?;
        stream.sent = stream.sent.after(sent, self.pattern.length());
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

impl<T: Transport> Protocol for Echo<T> {
    type State = Stream<T::Channel>;

    fn open(&mut self, index: u32) -> Self::State {
        Stream {
            channel: self.transport.open(),
            id: index,
            queued: 0,
            sent: Position::default(),
            received: Position::default(),
        }
    }

    fn greet(
        &mut self,
        connection: &mut Connection<Self::State>,
        readiness: Readiness,
    ) -> Result<bool, Fault> {
        let Connection { socket, state, .. } = connection;
        self.transport
            .greet(&mut state.channel, socket, readiness, &mut self.scratch)
    }

    fn start(
        &mut self,
        connection: &mut Connection<Self::State>,
        _: &mut Measurement,
    ) -> Result<(), Fault> {
        self.fill(connection, clock::now())
    }

    #[inline]
    fn ready(
        &mut self,
        connection: &mut Connection<Self::State>,
        readiness: Readiness,
        measurement: &mut Measurement,
    ) -> Result<Turn, Fault> {
        if readiness.writable() {
            let Connection { socket, state, .. } = connection;
            self.transport.flush(&mut state.channel, socket)?;
            if state.sent.message < state.queued {
                self.write(connection)?;
            }
        }
        if !readiness.readable() {
            return Ok(Turn::Done);
        }
        let Connection { socket, state, .. } = connection;
        let Stream {
            channel,
            id,
            sent,
            received,
            ..
        } = state;
        let before = received.message;
        let mut now = 0;
        let scratch = &mut self.scratch;
        let turn = self
            .transport
            .read(channel, socket, readiness, scratch, |bytes| {
                now = clock::now();
                let first = received.message;
                let is_right = self.pattern.verify(*id, received, bytes);
                // Bytes beyond those that were sent are wrong, even if they match the pattern.
                if !is_right || *received > *sent {
                    return Err(Fault::Mismatch);
                }
                measurement.transferred(bytes.len());
                for message in first..received.message {
                    let sent_at = self.sent_at[place(*id, self.depth, message)];
                    measurement.completed_in(now - sent_at);
                }
                Ok(())
            })?;
        if received.message > before {
            self.fill(connection, now)?;
        }
        Ok(turn)
    }
}
