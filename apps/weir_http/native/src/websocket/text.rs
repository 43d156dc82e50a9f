//! Incremental validation of UTF-8, which fails at the first byte that cannot be valid.

use simdutf8::{basic, compat};

/// The incomplete character at the end of a piece: up to three bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Text {
    begun: [u8; 3],
    length: u8,
}

/// A byte that is invalid at its position.
#[derive(Debug, PartialEq, Eq)]
pub struct NotText;

impl Text {
    /// Validates the next piece.
    pub fn feed(&mut self, mut bytes: &[u8]) -> Result<(), NotText> {
        while self.length > 0 {
            let Some((&byte, rest)) = bytes.split_first() else { return Ok(()) };
            bytes = rest;
            self.push(byte)?;
        }
        if basic::from_utf8(bytes).is_ok() {
            return Ok(());
        }
        match compat::from_utf8(bytes) {
            Ok(_) => Ok(()),
            Err(error) if error.error_len().is_none() => {
                for &byte in &bytes[error.valid_up_to()..] {
                    self.push(byte)?;
                }
                Ok(())
            }
            Err(_) => Err(NotText),
        }
    }

    /// Validates a byte of the incomplete character.
    fn push(&mut self, byte: u8) -> Result<(), NotText> {
        let mut character = [0; 4];
        let length = usize::from(self.length);
        character[..length].copy_from_slice(&self.begun[..length]);
        character[length] = byte;
        match std::str::from_utf8(&character[..=length]) {
            Ok(_) => *self = Self::default(),
            Err(error) if error.error_len().is_none() => {
                self.begun[length] = byte;
                self.length += 1;
            }
            Err(_) => return Err(NotText),
        }
        Ok(())
    }

    /// Whether the text ends with a whole character.
    pub fn is_whole(self) -> bool {
        self.length == 0
    }

    /// Encodes the state as a number, for [`Text::from_number`].
    pub fn number(self) -> u32 {
        let [first, second, third] = self.begun;
        u32::from_le_bytes([first, second, third, self.length])
    }

    /// Decodes a number of [`Text::number`]; `None` for any other number.
    pub fn from_number(number: u32) -> Option<Self> {
        let [begun @ .., length] = number.to_le_bytes();
        let mut text = Self::default();
        for &byte in begun.get(..usize::from(length))? {
            text.push(byte).ok()?;
        }
        (text.number() == number).then_some(text)
    }
}

/// Whether the bytes are valid UTF-8.
pub fn is_text(bytes: &[u8]) -> bool {
    basic::from_utf8(bytes).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns where a text that is fed byte by byte is refused.
    fn refused_at(bytes: &[u8]) -> Option<usize> {
        let mut text = Text::default();
        bytes.iter().position(|byte| {
            let is_refused = text.feed(std::slice::from_ref(byte)).is_err();
            assert_eq!(Text::from_number(text.number()), Some(text));
            is_refused
        })
    }

    #[test]
    fn the_first_bad_byte() {
        for (bytes, at) in [
            (&b"\xce\xba\xe1\xbd\xb9\xcf\x83\xce\xbc\xce\xb5"[..], None),
            (b"\xce\xba\xf4\x90\x80\x80", Some(3)),
            (b"\xf4\x8f\xbf\xbf", None),
            (b"\xed\x9f\xbf", None),
            (b"\xed\xa0\x80", Some(1)),
            (b"\xc0\xaf", Some(0)),
            (b"\xe0\x80\xaf", Some(1)),
            (b"\xf0\x80\x80\xaf", Some(1)),
            (b"\xf5", Some(0)),
            (b"\xff", Some(0)),
            (b"a\x80", Some(1)),
            (b"\xe1\xbda", Some(2)),
            (b"\xce\xbaabc\xce", None),
        ] {
            assert_eq!(refused_at(bytes), at, "{bytes:x?}");
            let is_refused = |pieces: [&[u8]; 2]| {
                let mut text = Text::default();
                pieces.iter().any(|piece| text.feed(piece).is_err())
            };
            for cut in 0..=bytes.len() {
                assert_eq!(is_refused([&bytes[..cut], &bytes[cut..]]), at.is_some(), "{bytes:x?} cut at {cut}");
            }
        }
    }

    #[test]
    fn ends() {
        let mut text = Text::default();
        assert_eq!(text.feed("κόσμε".as_bytes()), Ok(()));
        assert!(text.is_whole());
        assert_eq!(text.feed(b"\xf4\x8f\xbf"), Ok(()));
        assert!(!text.is_whole());
        assert_eq!(text.feed(b"\xbf and more"), Ok(()));
        assert!(text.is_whole() && is_text("κόσμε".as_bytes()) && !is_text(b"\xce"));
    }

    #[test]
    fn numbers() {
        for number in [0x0400_0000, 0x0100_0061, 0x0100_0080, 0x0000_00ce, 0x02bd_bde1, u32::MAX] {
            assert_eq!(Text::from_number(number), None, "{number:x}");
        }
    }
}
