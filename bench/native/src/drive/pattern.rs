//! The byte pattern by which an echo is verified.

use std::ops::Range;

/// Bytes at the front of a message that distinguish it from every other.
const COUNTER_BYTES: usize = 8;

/// How messages are framed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Frame {
    /// No framing: the server echoes bytes.
    #[default]
    None,
    /// A length of four bytes, big-endian, before the message: `{packet, 4}`.
    Length4,
    /// A newline as the last byte of the message and nowhere else: `{packet, line}`.
    Line,
}

/// The kind of message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// How it is framed.
    pub frame: Frame,
    /// Its bytes, without the length of the frame.
    pub size: usize,
}

/// Messages of one size. Each begins with a counter of its connection and its place in the stream,
/// as far as it fits; the rest is the same in all. A lost, duplicated, torn or misdirected byte is
/// noticed, and a check costs two comparisons.
#[derive(Debug)]
pub struct Pattern {
    frame: Frame,
    /// A framed message, whose counter is overwritten.
    template: Vec<u8>,
    /// The range of the counter in the message.
    counter: Range<usize>,
    /// A buffer for a batch of messages, whose counters are written before each send.
    batch: Vec<u8>,
}

/// A place in the stream of one connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// Whole messages before it.
    pub message: u64,
    /// Bytes before it in its message.
    pub offset: usize,
}

impl Pattern {
    /// Messages of `size` bytes (at least one) in frames, at most `depth` of them in a send.
    pub fn new(frame: Frame, size: usize, depth: usize) -> Self {
        let filler = (0..size).map(|n| (n * 7 + n / 251) as u8);
        let mut template: Vec<u8> = match frame {
            Frame::None => filler.collect(),
            Frame::Length4 => (size as u32)
                .to_be_bytes()
                .into_iter()
                .chain(filler)
                .collect(),
            Frame::Line => filler.map(never_newline).collect(),
        };
        let start = template.len() - size;
        let mut end = template.len();
        if frame == Frame::Line {
            end -= 1;
            template[end] = b'\n';
        }
        Self {
            frame,
            counter: start..end.min(start + COUNTER_BYTES),
            batch: template.repeat(depth),
            template,
        }
    }

    /// Bytes of a message with its frame.
    #[inline]
    pub fn length(&self) -> usize {
        self.template.len()
    }

    /// The bytes of connection `id`'s stream from `start` up to message `end`.
    #[inline]
    pub fn bytes(&mut self, id: u32, start: Position, end: u64) -> &[u8] {
        let count = (end - start.message) as usize;
        let length = self.template.len();
        for (slot, message) in self.batch.chunks_exact_mut(length).zip(start.message..end) {
            let counter = counter(self.frame, id, message);
            slot[self.counter.clone()].copy_from_slice(&counter[..self.counter.len()]);
        }
        &self.batch[start.offset..count * length]
    }

    /// Compares received bytes with the stream at `position`, and advances the position. Returns
    /// whether all bytes are right.
    #[inline]
    pub fn verify(&self, id: u32, position: &mut Position, mut received: &[u8]) -> bool {
        let Range { start, end } = self.counter;
        while !received.is_empty() {
            let offset = position.offset;
            let counter = counter(self.frame, id, position.message);
            let expected = if offset < start {
                &self.template[offset..start]
            } else if offset < end {
                &counter[offset - start..end - start]
            } else {
                &self.template[offset..]
            };
            let length = expected.len().min(received.len());
            if received[..length] != expected[..length] {
                return false;
            }
            received = &received[length..];
            *position = position.after(length, self.template.len());
        }
        true
    }
}

impl Position {
    /// The position `bytes` later in a stream of messages of `length` bytes.
    #[inline]
    pub fn after(self, bytes: usize, length: usize) -> Self {
        let offset = self.offset + bytes;
        if offset < length {
            return Self { offset, ..self };
        }
        Self {
            message: self.message + (offset / length) as u64,
            offset: offset % length,
        }
    }
}

/// The message number comes first, little-endian: even messages of one byte differ from their
/// neighbours. In a line each byte carries seven bits, which leaves 16 for the connection.
#[inline]
fn counter(frame: Frame, id: u32, message: u64) -> [u8; COUNTER_BYTES] {
    let number = message ^ u64::from(id) << 40;
    match frame {
        Frame::None | Frame::Length4 => number.to_le_bytes(),
        Frame::Line => std::array::from_fn(|n| never_newline((number >> (7 * n)) as u8)),
    }
}

#[inline]
fn never_newline(byte: u8) -> u8 {
    byte | 0x80
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRAMES: [Frame; 3] = [Frame::None, Frame::Length4, Frame::Line];

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
        for frame in FRAMES {
            for size in [1, 7, 8, 9, 10, 64, 300] {
                let mut pattern = Pattern::new(frame, size, 2);
                let bytes = stream(&mut pattern, 3, 5);
                for piece in [1, 2, 3, 8, size, size + 1, bytes.len()] {
                    let mut position = Position::default();
                    for chunk in bytes.chunks(piece) {
                        let is_right = pattern.verify(3, &mut position, chunk);
                        assert!(is_right, "{frame:?} {size} by {piece}");
                    }
                    assert_eq!((position.message, position.offset), (5, 0));
                }
            }
        }
    }

    #[test]
    fn a_wrong_byte_is_seen_wherever_it_is() {
        for frame in FRAMES {
            let mut pattern = Pattern::new(frame, 20, 1);
            let bytes = stream(&mut pattern, 1, 3);
            for place in 0..bytes.len() {
                let mut wrong = bytes.clone();
                wrong[place] ^= 1;
                assert!(!pattern.verify(1, &mut Position::default(), &wrong));
            }
        }
    }

    #[test]
    fn lost_doubled_and_misdirected_messages_are_seen() {
        for frame in FRAMES {
            let mut pattern = Pattern::new(frame, 64, 1);
            let bytes = stream(&mut pattern, 1, 3);
            let (first, others) = bytes.split_at(pattern.length());
            assert!(!pattern.verify(1, &mut Position::default(), others));
            let doubled = [first, first].concat();
            assert!(!pattern.verify(1, &mut Position::default(), &doubled));
            assert!(!pattern.verify(2, &mut Position::default(), &bytes));
        }
    }

    #[test]
    fn frames_are_those_of_gen_tcp() {
        let mut pattern = Pattern::new(Frame::Length4, 300, 1);
        let bytes = stream(&mut pattern, 1, 2);
        assert_eq!(bytes.len(), 608);
        assert_eq!(bytes[..4], [0, 0, 1, 44]);
        assert_eq!(bytes[304..308], [0, 0, 1, 44]);
        let mut pattern = Pattern::new(Frame::Line, 300, 1);
        let bytes = stream(&mut pattern, 1, 300);
        for line in bytes.chunks(300) {
            let ends: Vec<_> = (0..300).filter(|&n| line[n] == b'\n').collect();
            assert_eq!(ends, [299]);
        }
    }

    #[test]
    fn a_batch_goes_on_inside_a_message() {
        let mut pattern = Pattern::new(Frame::None, 10, 3);
        let bytes = stream(&mut pattern, 1, 3);
        let start = Position {
            message: 1,
            offset: 4,
        };
        assert_eq!(pattern.bytes(1, start, 3), &bytes[14..]);
    }
}
