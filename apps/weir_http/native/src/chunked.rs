//! An incremental decoder of chunked bodies (RFC 9112, 7.1).
//!
//! Strict where servers differ: lines end in CRLF, a size consists of hexadecimal digits only, and
//! an extension follows its grammar without blanks. Extensions are skipped, up to a limit.

use crate::fields::is_token;
use crate::refusal::Refusal;

/// Bytes of framing (sizes, extensions, line ends) allowed in a body, in addition to
/// [`OVERHEAD_PER_BYTE`]. So small chunks are accepted, and large extensions are not.
const OVERHEAD: u64 = 16 * 1024;

/// Bytes of framing allowed per byte of data: enough for `1\r\n` and `\r\n` around a single byte,
/// and some zeros.
const OVERHEAD_PER_BYTE: u64 = 16;

/// What the next byte belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Phase {
    #[default]
    SizeBegin,
    Size,
    ExtensionBegin,
    ExtensionName,
    ValueBegin,
    Value,
    Quoted,
    Escaped,
    QuotedEnd,
    SizeLineFeed,
    Data,
    DataReturn,
    DataLineFeed,
    /// After the last chunk: the trailer section follows.
    Last,
}

/// All phases, by their numbers.
const PHASES: [Phase; 14] = [
    Phase::SizeBegin,
    Phase::Size,
    Phase::ExtensionBegin,
    Phase::ExtensionName,
    Phase::ValueBegin,
    Phase::Value,
    Phase::Quoted,
    Phase::Escaped,
    Phase::QuotedEnd,
    Phase::SizeLineFeed,
    Phase::Data,
    Phase::DataReturn,
    Phase::DataLineFeed,
    Phase::Last,
];

impl Phase {
    pub fn from_number(number: u8) -> Option<Phase> {
        PHASES.get(usize::from(number)).copied()
    }
}

/// The state of a decoder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Decoder {
    pub phase: Phase,
    /// Bytes left in the chunk.
    pub left: u64,
    /// Bytes of framing so far.
    pub overhead: u64,
    /// Bytes of data so far, including all of the current chunk.
    pub total: u64,
}

impl Decoder {
    /// Decodes bytes up to the trailer section, passes their data to `keep` in pieces, and returns
    /// how many were taken. A body of more than `most` bytes is refused as soon as a chunk size
    /// shows it.
    pub fn decode(&mut self, bytes: &[u8], most: u64, mut keep: impl FnMut(&[u8])) -> Result<usize, Refusal> {
        let mut at = 0;
        while at < bytes.len() && self.phase != Phase::Last {
            if self.phase == Phase::Data {
                let here = usize::try_from(self.left).unwrap_or(usize::MAX).min(bytes.len() - at);
                keep(&bytes[at..at + here]);
                at += here;
                self.left -= here as u64;
                if self.left == 0 {
                    self.phase = Phase::DataReturn;
                }
            } else {
                self.step(bytes[at], most)?;
                at += 1;
            }
        }
        Ok(at)
    }

    fn step(&mut self, byte: u8, most: u64) -> Result<(), Refusal> {
        self.overhead += 1;
        if self.overhead > OVERHEAD + self.total.saturating_mul(OVERHEAD_PER_BYTE) {
            return Err(Refusal::Chunk);
        }
        self.phase = match (self.phase, byte) {
            (Phase::SizeBegin | Phase::Size, byte) if byte.is_ascii_hexdigit() => self.digit(byte)?,
            (Phase::Size | Phase::ExtensionName | Phase::Value | Phase::QuotedEnd, b'\r') => Phase::SizeLineFeed,
            (Phase::Size | Phase::ExtensionName | Phase::Value | Phase::QuotedEnd, b';') => Phase::ExtensionBegin,
            (Phase::ExtensionBegin | Phase::ExtensionName, byte) if is_token(byte) => Phase::ExtensionName,
            (Phase::ExtensionName, b'=') => Phase::ValueBegin,
            (Phase::ValueBegin | Phase::Value, byte) if is_token(byte) => Phase::Value,
            (Phase::ValueBegin, b'"') => Phase::Quoted,
            (Phase::Quoted, b'"') => Phase::QuotedEnd,
            (Phase::Quoted, b'\\') => Phase::Escaped,
            (Phase::Quoted | Phase::Escaped, b'\t' | b' '..=b'~' | 0x80..) => Phase::Quoted,
            (Phase::SizeLineFeed, b'\n') if self.left == 0 => Phase::Last,
            (Phase::SizeLineFeed, b'\n') => self.begin_data(most)?,
            (Phase::DataReturn, b'\r') => Phase::DataLineFeed,
            (Phase::DataLineFeed, b'\n') => Phase::SizeBegin,
            _ => return Err(Refusal::Chunk),
        };
        Ok(())
    }

    fn digit(&mut self, byte: u8) -> Result<Phase, Refusal> {
        // More than any body has, and far from an overflow.
        if self.left >= 1 << 52 {
            return Err(Refusal::Chunk);
        }
        self.left = self.left * 16 + (byte as char).to_digit(16).map_or(0, u64::from);
        Ok(Phase::Size)
    }

    fn begin_data(&mut self, most: u64) -> Result<Phase, Refusal> {
        self.total += self.left;
        if self.total > most { Err(Refusal::BodyTooLarge) } else { Ok(Phase::Data) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: u64 = 1000;

    /// Returns the body, and the bytes after it.
    fn decoded<'a>(pieces: &[&'a str]) -> Result<(String, &'a str), Refusal> {
        let mut decoder = Decoder::default();
        let mut body = Vec::new();
        for piece in pieces {
            let taken = decoder.decode(piece.as_bytes(), MOST, |data| body.extend_from_slice(data))?;
            if decoder.phase == Phase::Last {
                return Ok((String::from_utf8(body).expect("text"), &piece[taken..]));
            }
        }
        Ok(("incomplete".into(), ""))
    }

    #[test]
    fn bodies() {
        for (text, body) in [
            ("5\r\nhello\r\n0\r\n", "hello"),
            ("5\r\nhello\r\n6\r\n world\r\n0\r\n", "hello world"),
            ("A\r\n0123456789\r\n0\r\n", "0123456789"),
            ("a;x\r\n0123456789\r\n000;y=z\r\n", "0123456789"),
            ("1;a=b;c=\"d\\\" e\";f\r\nx\r\n0\r\n", "x"),
            ("0\r\n", ""),
        ] {
            assert_eq!(decoded(&[text]), Ok((body.into(), "")), "{text:?}");
            assert_eq!(decoded(&[&format!("{text}rest")]), Ok((body.into(), "rest")), "{text:?}");
        }
    }

    #[test]
    fn any_two_pieces_are_the_whole() {
        let text = "5;a=\"b\"\r\nhello\r\n6\r\n world\r\n0\r\n";
        for cut in 0..=text.len() {
            let (first, second) = text.split_at(cut);
            assert_eq!(decoded(&[first, second]).map(|(body, _)| body), Ok("hello world".into()), "{cut}");
        }
        let bytes: Vec<&str> = (0..text.len()).map(|at| &text[at..at + 1]).collect();
        assert_eq!(decoded(&bytes).map(|(body, _)| body), Ok("hello world".into()));
    }

    #[test]
    fn not_chunks() {
        for bad in [
            "",
            "g",
            " 5",
            "+5",
            "-5",
            "0x5",
            "5_0",
            "5 \r",
            ";",
            "5;\r",
            "5; a",
            "5 ;a",
            "5;a=\r",
            "5;a=\"\n",
            "5;a\x01",
            "5\n",
            "5\r\r",
            "5\rh",
            "5;a\rb",
            "5\r\nhelloX",
            "5\r\nhello\n",
            "5\r\nhello\rX",
            "5;a=\"b\"c",
            "5;\u{e9}",
            "5;a,b",
        ] {
            let expected = if bad.is_empty() { Ok(("incomplete".into(), "")) } else { Err(Refusal::Chunk) };
            assert_eq!(decoded(&[bad]), expected, "{bad:?}");
        }
    }

    #[test]
    fn limits() {
        assert_eq!(decoded(&["3e9\r\n"]), Err(Refusal::BodyTooLarge));
        assert!(decoded(&["3e8\r\n"]).is_ok());
        assert_eq!(decoded(&["1ffffffffffffffffffff\r\n"]), Err(Refusal::Chunk));
        assert_eq!(decoded(&[&"0".repeat(17 * 1024)]), Err(Refusal::Chunk));
        let extension = format!("1;{}\r\n", "x".repeat(17 * 1024));
        assert_eq!(decoded(&[&extension]), Err(Refusal::Chunk));
        let mut small = "1\r\nx\r\n".repeat(1000);
        small.push_str("0\r\n");
        assert_eq!(decoded(&[&small]).map(|(body, _)| body.len()), Ok(1000));
    }

    #[test]
    fn phases_have_numbers() {
        for (number, phase) in PHASES.iter().enumerate() {
            assert_eq!((*phase as usize, Phase::from_number(number as u8)), (number, Some(*phase)));
        }
        assert_eq!(Phase::from_number(14), None);
    }
}
