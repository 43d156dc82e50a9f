//! The bytes that an echo is known by.

/// Bytes at the front of a message that tell it from every other.
const COUNTER_BYTES: usize = 8;

/// Messages of one size. Each begins with a counter of its connection and its place in the stream, as far as it fits;
/// the rest is the same in all. So a lost, doubled, torn or misdirected byte is seen, and a check costs two compares.
#[derive(Debug)]
pub struct Pattern {
    size: usize,
    filler: Vec<u8>,
    /// Room for a batch of messages, whose counters are written before each send.
    batch: Vec<u8>,
}

/// A place in the stream of one connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Position {
    /// Whole messages before it.
    pub message: u64,
    /// Bytes of the message it is in.
    pub offset: usize,
}

impl Pattern {
    /// Messages of `size` bytes (at least one), at most `depth` of them sent at once.
    pub fn new(size: usize, depth: usize) -> Self {
        let filler: Vec<u8> = (0..size).map(|n| (n * 7 + n / 251) as u8).collect();
        let batch = filler.repeat(depth);
        Self {
            size,
            filler,
            batch,
        }
    }

    /// The bytes of the stream of connection `id` from `start` to the beginning of message `end`.
    #[inline]
    pub fn bytes(&mut self, id: u32, start: Position, end: u64) -> &[u8] {
        let count = (end - start.message) as usize;
        for (slot, message) in self
            .batch
            .chunks_exact_mut(self.size)
            .zip(start.message..end)
        {
            let length = self.size.min(COUNTER_BYTES);
            slot[..length].copy_from_slice(&counter(id, message)[..length]);
        }
        &self.batch[start.offset..count * self.size]
    }

    /// Compares what was received with what the stream holds at `position`, and moves the position on. Returns whether
    /// all bytes are right.
    #[inline]
    pub fn verify(&self, id: u32, position: &mut Position, mut received: &[u8]) -> bool {
        let counter_length = self.size.min(COUNTER_BYTES);
        while !received.is_empty() {
            let offset = position.offset;
            let counter = counter(id, position.message);
            let expected = if offset < counter_length {
                &counter[offset..counter_length]
            } else {
                &self.filler[offset..]
            };
            let length = expected.len().min(received.len());
            if received[..length] != expected[..length] {
                return false;
            }
            received = &received[length..];
            position.offset += length;
            if position.offset == self.size {
                *position = Position {
                    message: position.message + 1,
                    offset: 0,
                };
            }
        }
        true
    }
}

/// The place in the stream comes first, its lowest byte in front: even a message of one byte differs from its
/// neighbours.
#[inline]
fn counter(id: u32, message: u64) -> [u8; COUNTER_BYTES] {
    (message ^ u64::from(id) << 40).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(pattern: &mut Pattern, id: u32, messages: u64) -> Vec<u8> {
        (0..messages)
            .flat_map(|message| {
                let start = Position { message, offset: 0 };
                pattern.bytes(id, start, message + 1).to_vec()
            })
            .collect()
    }

    #[test]
    fn a_stream_is_right_however_it_is_cut() {
        for size in [1, 7, 8, 9, 64, 300] {
            let mut pattern = Pattern::new(size, 2);
            let bytes = stream(&mut pattern, 3, 5);
            for piece in [1, 2, 3, 8, size, size + 1, bytes.len()] {
                let mut position = Position::default();
                for chunk in bytes.chunks(piece) {
                    assert!(pattern.verify(3, &mut position, chunk), "{size} by {piece}");
                }
                assert_eq!((position.message, position.offset), (5, 0));
            }
        }
    }

    #[test]
    fn a_wrong_byte_is_seen_wherever_it_is() {
        let mut pattern = Pattern::new(20, 1);
        let bytes = stream(&mut pattern, 1, 3);
        for place in 0..bytes.len() {
            let mut wrong = bytes.clone();
            wrong[place] ^= 1;
            assert!(!pattern.verify(1, &mut Position::default(), &wrong));
        }
    }

    #[test]
    fn lost_doubled_and_misdirected_messages_are_seen() {
        let mut pattern = Pattern::new(64, 1);
        let bytes = stream(&mut pattern, 1, 3);
        assert!(!pattern.verify(1, &mut Position::default(), &bytes[64..]));
        let doubled = [&bytes[..64], &bytes[..64]].concat();
        assert!(!pattern.verify(1, &mut Position::default(), &doubled));
        assert!(!pattern.verify(2, &mut Position::default(), &bytes));
    }

    #[test]
    fn a_batch_goes_on_inside_a_message() {
        let mut pattern = Pattern::new(10, 3);
        let bytes = stream(&mut pattern, 1, 3);
        let start = Position {
            message: 1,
            offset: 4,
        };
        assert_eq!(pattern.bytes(1, start, 3), &bytes[14..]);
    }
}
