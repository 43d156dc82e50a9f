//! The header of a frame (RFC 6455, 5.2), and its checks.

/// A protocol error of a peer. Each has one close code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Reserved bits, a reserved opcode, or an opcode that is not allowed at this point.
    Frame,
    /// Not masked, as frames of clients must be.
    NotMasked,
    /// A length that is not in its shortest form, or has its highest bit set.
    Length,
    /// A fragmented control frame, or one of more than 125 bytes.
    Control,
    /// A close frame with one byte, or with a code that may not be sent.
    CloseCode,
    /// Invalid UTF-8 in a text.
    NotText,
    /// A message, or a frame of it, that exceeds the limit.
    TooBig,
    /// A compressed message that cannot be inflated.
    Inflate,
}

impl Fault {
    /// Returns the close code to send (RFC 6455, 7.4.1).
    pub fn close_code(self) -> u16 {
        match self {
            Fault::NotText | Fault::Inflate => 1007,
            Fault::TooBig => 1009,
            _ => 1002,
        }
    }
}

pub const CONTINUATION: u8 = 0;
pub const TEXT: u8 = 1;
pub const BINARY: u8 = 2;
pub const CLOSE: u8 = 8;
pub const PING: u8 = 9;
pub const PONG: u8 = 10;

/// The most bytes of payload in a control frame.
pub const MOST_CONTROL: u64 = 125;

/// The header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    pub is_final: bool,
    pub is_compressed: bool,
    pub opcode: u8,
    pub length: u64,
    pub mask: [u8; 4],
}

impl Header {
    pub fn is_control(self) -> bool {
        self.opcode >= CLOSE
    }
}

/// Parses the header at the beginning of some bytes, and returns it with its length; `None` if it
/// is incomplete. Errors are reported as early as possible. `may_compress`: whether
/// permessage-deflate was negotiated.
pub fn parse(bytes: &[u8], may_compress: bool) -> Result<Option<(Header, usize)>, Fault> {
    let [first, second, rest @ ..] = bytes else { return Ok(None) };
    let opcode = first & 0x0f;
    let is_final = first & 0x80 != 0;
    let is_compressed = first & 0x40 != 0;
    let is_known = matches!(opcode, CONTINUATION | TEXT | BINARY | CLOSE | PING | PONG);
    let may_be_compressed = may_compress && matches!(opcode, TEXT | BINARY);
    if !is_known || first & 0x30 != 0 || (is_compressed && !may_be_compressed) {
        return Err(Fault::Frame);
    }
    if second & 0x80 == 0 {
        return Err(Fault::NotMasked);
    }
    let short = u64::from(second & 0x7f);
    if opcode >= CLOSE && (!is_final || short > MOST_CONTROL) {
        return Err(Fault::Control);
    }
    let (length, rest, before) = match short {
        126 => match rest.split_first_chunk::<2>() {
            Some((length, rest)) => (u64::from(u16::from_be_bytes(*length)), rest, 4),
            None => return Ok(None),
        },
        127 => match rest.split_first_chunk::<8>() {
            Some((length, rest)) => (u64::from_be_bytes(*length), rest, 10),
            None => return Ok(None),
        },
        _ => (short, rest, 2),
    };
    let is_minimal = match short {
        126 => length > 125,
        127 => length > 0xffff && length >> 63 == 0,
        _ => true,
    };
    if !is_minimal {
        return Err(Fault::Length);
    }
    let Some(mask) = rest.first_chunk::<4>() else { return Ok(None) };
    Ok(Some((Header { is_final, is_compressed, opcode, length, mask: *mask }, before + 4)))
}

/// Encodes the header of a server's frame: unmasked, with the shortest form of the length.
/// `first`: its first byte.
pub fn head(first: u8, length: u64) -> ([u8; 10], usize) {
    let mut head = [0; 10];
    head[0] = first;
    match length {
        0..=125 => {
            head[1] = length as u8;
            (head, 2)
        }
        126..=0xffff => {
            head[1] = 126;
            head[2..4].copy_from_slice(&(length as u16).to_be_bytes());
            (head, 4)
        }
        _ => {
            head[1] = 127;
            head[2..10].copy_from_slice(&length.to_be_bytes());
            (head, 10)
        }
    }
}

/// Whether a close frame may contain this code (RFC 6455, 7.4, and the registry of IANA).
pub fn may_close(code: u16) -> bool {
    matches!(code, 1000..=1003 | 1007..=1014 | 3000..=4999)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(bytes: &[u8]) -> Result<Option<(u64, usize)>, Fault> {
        let parsed = parse(bytes, false)?;
        Ok(parsed.map(|(header, end)| (header.length, end)))
    }

    #[test]
    fn lengths() {
        for (length, begin_at) in [(0, 6), (125, 6), (126, 8), (0xffff, 8), (0x1_0000, 14), (u64::MAX >> 1, 14)] {
            let (head, end) = head(0x82, length);
            let mut bytes = head[..end].to_vec();
            bytes[1] |= 0x80;
            bytes.extend_from_slice(&[1, 2, 3, 4]);
            for end in 0..bytes.len() {
                assert_eq!(header(&bytes[..end]), Ok(None));
            }
            assert_eq!(header(&bytes), Ok(Some((length, begin_at))));
        }
        for bad in [
            &[0x82, 0xfe, 0, 125][..],
            &[0x82, 0xff, 0, 0, 0, 0, 0, 0, 0xff, 0xff],
            &[0x82, 0xff, 0x80, 0, 0, 0, 0, 1, 0, 0],
        ] {
            assert_eq!(header(bad), Err(Fault::Length), "{bad:x?}");
        }
    }

    #[test]
    fn what_no_frame_may_say() {
        for (first, second, expected) in [
            (0x92, 0x80, Fault::Frame),
            (0xa2, 0x80, Fault::Frame),
            (0xc2, 0x80, Fault::Frame),
            (0x83, 0x80, Fault::Frame),
            (0x87, 0x80, Fault::Frame),
            (0x8b, 0x80, Fault::Frame),
            (0x8f, 0x80, Fault::Frame),
            (0x82, 0x00, Fault::NotMasked),
            (0x09, 0x80, Fault::Control),
            (0x89, 0xfe, Fault::Control),
        ] {
            assert_eq!(header(&[first, second]), Err(expected), "{first:x} {second:x}");
        }
        for (first, is_right) in [(0xc1, true), (0xc2, true), (0xc0, false), (0xc9, false), (0xd1, false)] {
            assert_eq!(parse(&[first, 0x80], true).is_ok(), is_right, "{first:x}");
        }
    }

    #[test]
    fn codes() {
        let right: Vec<u16> = (0..=u16::MAX).filter(|code| may_close(*code)).collect();
        assert_eq!(right.len(), 4 + 8 + 2000);
        for wrong in [0, 999, 1004, 1005, 1006, 1015, 1016, 2999, 5000] {
            assert!(!may_close(wrong));
        }
    }
}
