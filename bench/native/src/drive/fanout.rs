//! Listeners that receive the messages a server sends to all, and compute the delay from the
//! timestamp. Slow listeners never read; only the deliveries to the others count.

use std::os::fd::OwnedFd;

use rustix::io::Errno;

use super::measurement::{Fault, Measurement};
use super::protocol::{Connection, Protocol};
use super::readers::Readers;
use super::target::Target;
use super::transport::{Transport, Turn};
use crate::clock;
use crate::poller::Readiness;
use crate::reference::fanout::TIMESTAMP_BYTES;
use crate::socket::scratch;

/// The listeners' side of the fan-out.
#[derive(Debug)]
pub struct Fanout<T> {
    transport: T,
    size: usize,
    readers: Readers,
    scratch: Box<[u8]>,
}

/// A listener and the state of its transport.
#[derive(Debug)]
pub struct Listener<C> {
    channel: C,
    kind: Kind,
}

/// The behaviour of a listener.
#[derive(Debug)]
pub enum Kind {
    /// It reads all messages.
    Attentive(Arriving),
    /// It never reads.
    Slow,
}

/// The message that is being received.
#[derive(Debug, Default)]
pub struct Arriving {
    timestamp: [u8; TIMESTAMP_BYTES],
    received: usize,
}

impl<T> Fanout<T> {
    /// Messages of `size` bytes, whose first eight are the timestamp, for `connections` listeners,
    /// of which `slow` never read.
    pub fn new(transport: T, size: usize, connections: u32, slow: u32) -> Self {
        Self {
            transport,
            size,
            readers: Readers {
                all: connections,
                slow,
            },
            scratch: scratch(),
        }
    }
}

impl Arriving {
    /// Takes bytes of messages of `size` bytes, and calls `complete` with the timestamp of each
    /// complete message.
    fn take(&mut self, size: usize, mut bytes: &[u8], mut complete: impl FnMut(u64)) {
        while !bytes.is_empty() {
            let length = bytes.len().min(size - self.received);
            if self.received < TIMESTAMP_BYTES {
                let end = TIMESTAMP_BYTES.min(self.received + length);
                self.timestamp[self.received..end].copy_from_slice(&bytes[..end - self.received]);
            }
            self.received += length;
            bytes = &bytes[length..];
            if self.received == size {
                self.received = 0;
                complete(u64::from_be_bytes(self.timestamp));
            }
        }
    }
}

impl<T: Transport> Protocol for Fanout<T> {
    type State = Listener<T::Channel>;

    /// A slow listener gets the smallest receive buffer: by default the kernel could buffer more
    /// than the server sends in a whole run.
    fn dial(&self, target: &Target, index: u32) -> Result<OwnedFd, Errno> {
        if self.readers.is_slow(index) {
            target.dial_to_ignore(index)
        } else {
            target.dial(index)
        }
    }

    fn open(&mut self, index: u32) -> Self::State {
        let kind = if self.readers.is_slow(index) {
            Kind::Slow
        } else {
            Kind::Attentive(Arriving::default())
        };
        Listener {
            channel: self.transport.open(),
            kind,
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

    fn start(&mut self, _: &mut Connection<Self::State>, _: &mut Measurement) -> Result<(), Fault> {
        Ok(())
    }

    #[inline]
    fn ready(
        &mut self,
        connection: &mut Connection<Self::State>,
        readiness: Readiness,
        measurement: &mut Measurement,
    ) -> Result<Turn, Fault> {
        if !readiness.readable() {
            return Ok(Turn::Done);
        }
        let Connection { socket, state, .. } = connection;
        let Listener { channel, kind } = state;
        let arriving = match kind {
            Kind::Attentive(arriving) => arriving,
            Kind::Slow if readiness.closing() => return Err(Fault::Closed),
            Kind::Slow => return Ok(Turn::Done),
        };
        let Self {
            transport,
            size,
            scratch,
            ..
        } = self;
        transport.read(channel, socket, readiness, scratch, |bytes| {
            let now = clock::now();
            let mut is_right = true;
            measurement.transferred(bytes.len());
            arriving.take(*size, bytes, |sent_at| {
                // Zero or a future time is no timestamp: the sizes differ, or it is another kind
                // of server.
                is_right &= sent_at > 0 && sent_at <= now;
                measurement.completed_in(now.saturating_sub(sent_at));
            });
            if is_right {
                Ok(())
            } else {
                Err(Fault::Mismatch)
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_are_found_however_the_stream_is_cut() {
        for size in [8, 9, 20] {
            let mut stream = Vec::new();
            for stamp in [1_u64, u64::MAX, 0x0102_0304_0506_0708] {
                stream.extend_from_slice(&stamp.to_be_bytes());
                stream.resize(stream.len() + size - TIMESTAMP_BYTES, 0xff);
            }
            for piece in 1..=stream.len() {
                let mut arriving = Arriving::default();
                let mut stamps = Vec::new();
                for bytes in stream.chunks(piece) {
                    arriving.take(size, bytes, |stamp| stamps.push(stamp));
                }
                assert_eq!(stamps, [1, u64::MAX, 0x0102_0304_0506_0708]);
            }
        }
    }
}
