//! The payload of compressed messages (RFC 7692).
//!
//! With negotiated context, the state of a connection is the last bytes of the previous messages,
//! which the caller keeps. They are the dictionary for each message. The streams belong to the
//! thread: a stream per connection would need 40 KiB to inflate and up to 260 KiB to deflate.

use std::cell::RefCell;

use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};

use super::frame::Fault;

/// The end of every message, which is not sent (RFC 7692, 7.2.1).
const TAIL: [u8; 4] = [0x00, 0x00, 0xff, 0xff];

/// Window sizes for deflating. The largest window can inflate everything.
pub const WINDOW_BITS: std::ops::RangeInclusive<u8> = 9..=15;

/// Ends of streams allowed in a message. Each is as expensive as the beginning of a stream, and
/// real clients send at most one.
const MOST_ENDS: usize = 8;

/// Initial room for output, in bytes.
const ROOM: usize = 4096;

struct Deflater {
    stream: Compress,
    level: u8,
    window_bits: u8,
}

thread_local! {
    static INFLATE: RefCell<Decompress> = RefCell::new(Decompress::new(false));
    static DEFLATE: RefCell<Option<Deflater>> = const { RefCell::new(None) };
}

/// Inflates a message into `out`, which is empty. Returns whether the result is complete: it stops
/// after `most` bytes. `window` is the end of the previous messages.
pub fn inflate(window: &[u8], message: &[u8], most: usize, out: &mut Vec<u8>) -> Result<bool, Fault> {
    INFLATE.with_borrow_mut(|stream| {
        stream.reset(false);
        if !window.is_empty() {
            stream.set_dictionary(window).map_err(|_| Fault::Inflate)?;
        }
        let mut ends = 0;
        for mut bytes in [message, &TAIL] {
            while !bytes.is_empty() {
                match step(stream, &mut bytes, most, out)? {
                    Step::Ended if ends == MOST_ENDS => return Err(Fault::Inflate),
                    // A message may contain complete streams. Later streams still refer to the
                    // bytes before them.
                    Step::Ended => {
                        ends += 1;
                        stream.reset(false);
                        let known = last(window, out, 1 << WINDOW_BITS.end());
                        stream.set_dictionary(&known).map_err(|_| Fault::Inflate)?;
                    }
                    Step::TooLong => return Ok(false),
                    Step::Input => {}
                }
            }
        }
        Ok(true)
    })
}

enum Step {
    Input,
    Ended,
    TooLong,
}

/// Inflates until the input is used up, a stream ends, or there are more than `most` bytes.
fn step(stream: &mut Decompress, bytes: &mut &[u8], most: usize, out: &mut Vec<u8>) -> Result<Step, Fault> {
    loop {
        // Room for one byte more than allowed, which shows that the message is too long.
        let room = out
            .capacity()
            .max(ROOM)
            .saturating_mul(if out.len() == out.capacity() { 2 } else { 1 })
            .min(most.saturating_add(1));
        out.reserve_exact(room.saturating_sub(out.len()).max(1));
        let before = stream.total_in();
        let written = out.len();
        let status = stream.decompress_vec(bytes, out, FlushDecompress::None);
        let used = (stream.total_in() - before) as usize;
        *bytes = &bytes[used..];
        if out.len() > most {
            return Ok(Step::TooLong);
        }
        match status {
            Err(_) => return Err(Fault::Inflate),
            Ok(Status::StreamEnd) => return Ok(Step::Ended),
            Ok(_) if out.len() == out.capacity() => {}
            Ok(_) if bytes.is_empty() => return Ok(Step::Input),
            Ok(_) if used == 0 && out.len() == written => return Err(Fault::Inflate),
            Ok(_) => {}
        }
    }
}

/// Returns the last bytes of two pieces.
fn last(before: &[u8], after: &[u8], most: usize) -> Vec<u8> {
    let from_after = after.len().min(most);
    let from_before = before.len().min(most - from_after);
    [&before[before.len() - from_before..], &after[after.len() - from_after..]].concat()
}

/// Deflates a message into `out`, which is empty. The level is 1 to 9. `window` is the end of the
/// previous messages.
pub fn deflate(window: &[u8], message: &[u8], level: u8, window_bits: u8, out: &mut Vec<u8>) -> Result<(), Fault> {
    DEFLATE.with_borrow_mut(|kept| {
        let deflater = match kept {
            Some(deflater) if (deflater.level, deflater.window_bits) == (level, window_bits) => {
                deflater.stream.reset();
                deflater
            }
            _ => {
                let bits = window_bits.clamp(*WINDOW_BITS.start(), *WINDOW_BITS.end());
                let stream =
                    Compress::new_with_window_bits(Compression::new(u32::from(level.clamp(1, 9))), false, bits);
                kept.insert(Deflater { stream, level, window_bits })
            }
        };
        let stream = &mut deflater.stream;
        if !window.is_empty() {
            stream.set_dictionary(window).map_err(|_| Fault::Inflate)?;
        }
        let mut used = 0;
        loop {
            out.reserve((message.len() / 2).clamp(64, 1 << 20));
            let before = stream.total_in();
            let status = stream.compress_vec(&message[used..], out, FlushCompress::Sync);
            used += (stream.total_in() - before) as usize;
            match status {
                Err(_) => return Err(Fault::Inflate),
                Ok(_) if used == message.len() && out.len() < out.capacity() => break,
                Ok(_) => {}
            }
        }
        if out.ends_with(&TAIL) {
            out.truncate(out.len() - TAIL.len());
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deflated(window: &[u8], message: &[u8], bits: u8) -> Vec<u8> {
        let mut out = vec![];
        deflate(window, message, 6, bits, &mut out).expect("is deflated");
        out
    }

    fn inflated(window: &[u8], message: &[u8], most: usize) -> Result<Option<Vec<u8>>, Fault> {
        let mut out = vec![];
        let is_whole = inflate(window, message, most, &mut out)?;
        assert!(out.len() <= most.saturating_add(1));
        Ok(is_whole.then_some(out))
    }

    fn noise(length: usize) -> Vec<u8> {
        let mut state = 12345u32;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        };
        (0..length).map(|_| next()).collect()
    }

    #[test]
    fn there_and_back() {
        for message in [vec![], b"Hello".to_vec(), b"abc".repeat(1000), vec![0; 1 << 20], noise(1 << 17)] {
            for bits in WINDOW_BITS {
                let there = deflated(b"", &message, bits);
                assert_eq!(inflated(b"", &there, message.len()), Ok(Some(message.clone())));
                if !message.is_empty() {
                    assert_eq!(inflated(b"", &there, message.len() - 1), Ok(None));
                }
            }
        }
    }

    #[test]
    fn what_was_said_before() {
        let first = noise(300);
        let second = [&first[..], b"and more"].concat();
        let alone = deflated(b"", &second, 15);
        let there = deflated(&first, &second, 15);
        assert!(there.len() < alone.len() / 4, "{} of {}", there.len(), alone.len());
        assert_eq!(inflated(&first, &there, 1000), Ok(Some(second)));
        assert_eq!(inflated(b"", &there, 1000), Err(Fault::Inflate));
    }

    #[test]
    fn the_examples_of_the_rfc() {
        for bytes in [
            &b"\xf2\x48\xcd\xc9\xc9\x07\x00"[..],
            b"\x00\x05\x00\xfa\xff\x48\x65\x6c\x6c\x6f\x00",
            b"\xf3\x48\xcd\xc9\xc9\x07\x00\x00",
            b"\xf2\x48\x05\x00\x00\x00\xff\xff\xca\xc9\xc9\x07\x00",
        ] {
            assert_eq!(inflated(b"", bytes, 5), Ok(Some(b"Hello".to_vec())), "{bytes:x?}");
        }
        assert_eq!(inflated(b"Hello", b"\xf2\x00\x11\x00\x00", 5), Ok(Some(b"Hello".to_vec())));
    }

    #[test]
    fn bombs_and_noise() {
        let bomb = deflated(b"", &vec![0; 16 << 20], 15);
        assert!(bomb.len() < 20_000);
        assert_eq!(inflated(b"", &bomb, 1000), Ok(None));
        for seed in 0..200 {
            let _ = inflated(b"", &noise(400)[seed..], 1 << 20);
        }
        assert_eq!(inflated(b"", &b"\x03\x00".repeat(MOST_ENDS + 1), 10), Err(Fault::Inflate));
        assert_eq!(inflated(b"", b"\x06", 10), Err(Fault::Inflate));
    }
}
