//! Listeners: each takes the messages that the server sends to all, and sees from the timestamp how long they took.

use super::fleet::{Connection, Protocol, Turn, read};
use super::measurement::{Fault, Measurement};
use crate::clock;
use crate::poller::Readiness;
use crate::reference::fanout::TIMESTAMP_BYTES;
use crate::socket::scratch;

/// The listeners' side of the fan-out.
#[derive(Debug)]
pub struct Fanout {
    size: usize,
    scratch: Box<[u8]>,
}

/// The message that is on its way.
#[derive(Debug, Default)]
pub struct Arriving {
    timestamp: [u8; TIMESTAMP_BYTES],
    received: usize,
}

impl Fanout {
    /// Messages of `size` bytes, of which the first eight are the timestamp.
    pub fn new(size: usize) -> Self {
        Self {
            size,
            scratch: scratch(),
        }
    }
}

impl Arriving {
    /// Takes bytes of messages of `size` bytes and calls `complete` with the timestamp of each that is whole.
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

impl Protocol for Fanout {
    type State = Arriving;

    fn open(&mut self, _index: u32) -> Arriving {
        Arriving::default()
    }

    fn start(&mut self, _: &mut Connection<Arriving>, _: &mut Measurement) -> Result<(), Fault> {
        Ok(())
    }

    #[inline]
    fn ready(
        &mut self,
        connection: &mut Connection<Arriving>,
        readiness: Readiness,
        measurement: &mut Measurement,
    ) -> Result<Turn, Fault> {
        if !readiness.readable() {
            return Ok(Turn::Done);
        }
        let arriving = &mut connection.state;
        read(&connection.socket, readiness, &mut self.scratch, |bytes| {
            let now = clock::now();
            let mut is_right = true;
            measurement.transferred(bytes.len());
            arriving.take(self.size, bytes, |sent_at| {
                // A time to come, or zero, is no timestamp: the sizes differ, or the server is another one.
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
