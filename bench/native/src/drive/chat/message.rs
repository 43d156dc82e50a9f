//! A message in a room: its due time and its number in hexadecimal, and padding.

/// Bytes of the two numbers.
pub const STAMP_BYTES: usize = 32;

/// A number has the speaker above this many bits.
const SPEAKER_BITS: u32 = 40;

/// A received message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// When it was due.
    pub due: u64,
    /// Its number in the sequence of its speaker.
    pub number: u64,
    /// Earlier messages of its speaker that did not arrive.
    pub missed: u64,
}

/// The number before the first of a speaker.
pub fn first(speaker: u32) -> u64 {
    u64::from(speaker) << SPEAKER_BITS
}

/// The speaker of a message with this number.
pub fn speaker(number: u64) -> usize {
    (number >> SPEAKER_BITS) as usize
}

/// Appends a message with this many bytes.
pub fn write(message: &mut Vec<u8>, due: u64, number: u64, size: usize) {
    let start = message.len();
    message.extend_from_slice(format!("{due:016x}{number:016x}").as_bytes());
    message.resize(start + size.max(STAMP_BYTES), b'.');
}

/// The due time and number of a message; `None` if it is not one of ours.
pub fn read(message: &[u8]) -> Option<(u64, u64)> {
    let stamp = std::str::from_utf8(message.get(..STAMP_BYTES)?).ok()?;
    let due = u64::from_str_radix(&stamp[..16], 16).ok()?;
    let number = u64::from_str_radix(&stamp[16..], 16).ok()?;
    Some((due, number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speakers_have_numbers_of_their_own() {
        assert_eq!(first(0), 0);
        assert_eq!(speaker(first(999) + 5), 999);
    }

    #[test]
    fn what_is_written_is_read() {
        let mut message = b"before".to_vec();
        write(&mut message, 0x1234, 7, 40);
        assert_eq!(message.len(), 46);
        assert_eq!(read(&message[6..]), Some((0x1234, 7)));
        assert_eq!(read(&message[6..30]), None);
        assert_eq!(read(&[b'.'; 40]), None);
    }
}
