//! Packet types: finds the end of a packet in a byte stream, for `{packet, Type}` of
//! `inet:setopts/2`.
//!
//! The rules are those of OTP's `packet_parser.c`, which `erlang:decode_packet/3` uses, too.

use memchr::memchr;

/// A packet type of the inet driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packet {
    /// Each read is a packet.
    Raw,
    /// A big-endian length of one, two or four bytes in front.
    One,
    Two,
    Four,
    /// An ASN.1 BER tag and length in front (X.690).
    Asn1,
    /// Sun RPC record marking (RFC 5531, 11).
    Sunrm,
    /// CORBA GIOP.
    Cdr,
    /// FastCGI.
    Fcgi,
    /// ISO transport over TCP (RFC 1006).
    Tpkt,
    /// A line, including its delimiter.
    Line,
    /// Lines of an HTTP message, with strings as lists or as binaries; `Httph` parses header
    /// fields only.
    Http,
    Httph,
    HttpBin,
    HttphBin,
}

impl Packet {
    /// Whether packets are HTTP lines, which are delivered parsed.
    pub fn is_http(self) -> bool {
        matches!(self, Packet::Http | Packet::Httph | Packet::HttpBin | Packet::HttphBin)
    }

    /// Size of the length that is added in front of sent data.
    pub fn header_size(self) -> usize {
        match self {
            Packet::One => 1,
            Packet::Two => 2,
            Packet::Four => 4,
            _ => 0,
        }
    }
}

/// The limits of a packet.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Maximum size of the body in bytes, without a length in front; zero for no limit.
    pub packet_size: usize,
    /// Maximum bytes kept while the length is unknown. Longer lines are delivered in pieces.
    pub buffer: usize,
    /// The last byte of a line.
    pub delimiter: u8,
}

/// What the received bytes begin with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Front {
    /// A packet of this size, header included. If it exceeds the bytes, the rest has not arrived
    /// yet.
    Packet(usize),
    /// The start of a packet of unknown length.
    Incomplete,
    /// Not a packet, or too long: `emsgsize`.
    Invalid,
}

const CDR_HEADER: usize = 12;
const FCGI_HEADER: usize = 8;
const TPKT_HEADER: usize = 4;

/// Finds the end of the first packet in `bytes`. `in_headers` says whether the request or status
/// line of an HTTP message has been taken; the types that parse header fields only set it.
pub fn front(packet: Packet, bytes: &[u8], limits: Limits, in_headers: &mut bool) -> Front {
    let front = match packet {
        Packet::Raw if bytes.is_empty() => Front::Incomplete,
        Packet::Raw => Front::Packet(bytes.len()),
        Packet::One => after(bytes, 1, limits, |header| header[0].into()),
        Packet::Two => after(bytes, 2, limits, big_endian),
        Packet::Four => after(bytes, 4, limits, big_endian),
        Packet::Sunrm => after(bytes, 4, limits, |header| big_endian(header) & 0x7fff_ffff),
        Packet::Asn1 => asn1(bytes, limits),
        Packet::Cdr => match bytes {
            [b'G', b'I', b'O', b'P', ..] => after(bytes, CDR_HEADER, limits, |header| match header[6] & 1 {
                0 => big_endian(&header[8..]),
                _ => header[8..].iter().rev().fold(0, |sum, &byte| sum << 8 | u64::from(byte)),
            }),
            _ if bytes.len() < CDR_HEADER => Front::Incomplete,
            _ => Front::Invalid,
        },
        Packet::Fcgi if bytes.len() >= FCGI_HEADER && bytes[0] != 1 => Front::Invalid,
        Packet::Fcgi => after(bytes, FCGI_HEADER, limits, |header| big_endian(&header[4..6]) + u64::from(header[6])),
        Packet::Tpkt if bytes.len() >= TPKT_HEADER && bytes[0] != 3 => Front::Invalid,
        // The length includes its header. If it is smaller, it wraps around, and `sized` rejects
        // it.
        Packet::Tpkt => after(bytes, TPKT_HEADER, limits, |header| {
            u64::from((big_endian(&header[2..]) as u32).wrapping_sub(TPKT_HEADER as u32))
        }),
        Packet::Line => line(bytes, limits),
        Packet::Http | Packet::HttpBin => http(bytes, limits, *in_headers),
        Packet::Httph | Packet::HttphBin => {
            *in_headers = true;
            http(bytes, limits, true)
        }
    };
    match front {
        // Without a known length, `buffer` and `packet_size` still bound a packet.
        Front::Incomplete if bytes.len() >= limits.buffer.max(limits.packet_size) => Front::Invalid,
        front => front,
    }
}

/// The part of a packet that is delivered.
pub fn body(packet: Packet, bytes: &[u8]) -> &[u8] {
    match packet {
        Packet::One | Packet::Two | Packet::Four => &bytes[packet.header_size()..],
        // The padding is removed, the header is kept.
        Packet::Fcgi => &bytes[..bytes.len() - usize::from(bytes[6])],
        _ => bytes,
    }
}

/// The length to send in front of a packet, and its size; `None` if the length does not fit.
pub fn header(packet: Packet, length: usize) -> Option<([u8; 4], usize)> {
    let size = packet.header_size();
    let length = u32::try_from(length).ok()?;
    if size < 4 && length >> (8 * size) != 0 && size > 0 {
        return None;
    }
    let mut header = [0; 4];
    header[..size].copy_from_slice(&length.to_be_bytes()[4 - size..]);
    Some((header, size))
}

fn big_endian(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |sum, &byte| sum << 8 | u64::from(byte))
}

/// A packet with the length of its body in a header of `size` bytes.
fn after(bytes: &[u8], size: usize, limits: Limits, length: impl FnOnce(&[u8]) -> u64) -> Front {
    match bytes.get(..size) {
        Some(header) => sized(size, length(header), limits),
        None => Front::Incomplete,
    }
}

fn sized(header: usize, body: u64, limits: Limits) -> Front {
    let total = header as u64 + body;
    // The inet driver has 32-bit signed lengths, for which longer ones are negative.
    if total > i32::MAX as u64 || (limits.packet_size != 0 && body > limits.packet_size as u64) {
        return Front::Invalid;
    }
    Front::Packet(total as usize)
}

fn asn1(bytes: &[u8], limits: Limits) -> Front {
    if bytes.len() < 2 {
        return Front::Incomplete;
    }
    let mut at = 1;
    if bytes[0] & 0x1f == 0x1f {
        // A tag of several bytes: all but the last have the high bit set.
        while bytes.get(at).is_some_and(|byte| byte & 0x80 != 0) {
            at += 1;
        }
        if bytes.len() - at < 2 {
            return Front::Incomplete;
        }
        at += 1;
    }
    let first = bytes[at];
    at += 1;
    if first & 0x80 == 0 {
        return sized(at, first.into(), limits);
    }
    let size = usize::from(first & 0x7f);
    match bytes.get(at..at + size) {
        None => Front::Incomplete,
        Some(length) if size <= 4 => sized(at + size, big_endian(length), limits),
        Some(_) => Front::Invalid,
    }
}

fn line(bytes: &[u8], Limits { packet_size, buffer, delimiter }: Limits) -> Front {
    let end = memchr(delimiter, bytes).map(|at| at + 1);
    if packet_size != 0 && end.unwrap_or(bytes.len()) > packet_size {
        return Front::Invalid;
    }
    match end {
        Some(length) => Front::Packet(length.min(buffer)),
        None if bytes.len() >= buffer => Front::Packet(buffer),
        None => Front::Incomplete,
    }
}

/// A line of HTTP. A header field continues in lines that begin with a blank (RFC 9112, 5.2), so
/// its end is known only when the next line has begun.
fn http(bytes: &[u8], limits: Limits, in_headers: bool) -> Front {
    if bytes == b"\n" || bytes == b"\r\n" {
        return Front::Packet(bytes.len());
    }
    let longest = if limits.packet_size == 0 { limits.buffer } else { limits.packet_size };
    let mut from = 0;
    loop {
        let Some(at) = memchr(b'\n', &bytes[from..]) else {
            return if bytes.len() >= longest { Front::Invalid } else { Front::Incomplete };
        };
        let length = from + at + 1;
        let goes_on = match bytes.get(length) {
            _ if !in_headers => false,
            Some(b' ' | b'\t') => length > 2,
            Some(_) => false,
            None if length > longest => return Front::Invalid,
            None => return Front::Incomplete,
        };
        if !goes_on {
            return if length > longest { Front::Invalid } else { Front::Packet(length) };
        }
        from = length;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: Limits = Limits { packet_size: 0, buffer: 1460, delimiter: b'\n' };

    fn at(packet: Packet, bytes: &[u8]) -> Front {
        limited(packet, bytes, NONE)
    }

    fn limited(packet: Packet, bytes: &[u8], limits: Limits) -> Front {
        front(packet, bytes, limits, &mut false)
    }

    #[test]
    fn lengths_in_front() {
        assert_eq!(at(Packet::One, b"\x03ab"), Front::Packet(4));
        assert_eq!(at(Packet::Two, b"\x00"), Front::Incomplete);
        assert_eq!(at(Packet::Two, b"\x01\x00"), Front::Packet(258));
        assert_eq!(at(Packet::Four, b"\x00\x00\x00\x00rest"), Front::Packet(4));
        assert_eq!(at(Packet::Sunrm, b"\x80\x00\x00\x02"), Front::Packet(6));
        assert_eq!(body(Packet::Two, b"\x00\x02ab"), b"ab");
        assert_eq!(body(Packet::Sunrm, b"\x80\x00\x00\x01a"), b"\x80\x00\x00\x01a");
    }

    #[test]
    fn negative_lengths_are_none() {
        assert_eq!(at(Packet::Four, b"\xff\xff\xff\xff"), Front::Invalid);
        assert_eq!(at(Packet::Four, b"\x80\x00\x00\x00"), Front::Invalid);
        assert_eq!(at(Packet::Four, b"\x7f\xff\xff\xfb"), Front::Packet(i32::MAX as usize));
        assert_eq!(at(Packet::Tpkt, b"\x03\x00\x00\x03"), Front::Invalid);
        assert_eq!(at(Packet::Tpkt, b"\x03\x00\x00\x04"), Front::Packet(4));
        assert_eq!(at(Packet::Tpkt, b"\x02\x00\x00\x04"), Front::Invalid);
    }

    #[test]
    fn a_limit_is_on_the_body() {
        let limits = Limits { packet_size: 3, ..NONE };
        assert_eq!(limited(Packet::Four, b"\x00\x00\x00\x03", limits), Front::Packet(7));
        assert_eq!(limited(Packet::Four, b"\x00\x00\x00\x04", limits), Front::Invalid);
    }

    #[test]
    fn asn1_tags_and_lengths() {
        assert_eq!(at(Packet::Asn1, b"\x30"), Front::Incomplete);
        assert_eq!(at(Packet::Asn1, b"\x30\x05"), Front::Packet(7));
        assert_eq!(at(Packet::Asn1, b"\x30\x82\x01"), Front::Incomplete);
        assert_eq!(at(Packet::Asn1, b"\x30\x82\x01\x00"), Front::Packet(260));
        assert_eq!(at(Packet::Asn1, b"\x3f\x81\x01\x02"), Front::Packet(6));
        assert_eq!(at(Packet::Asn1, b"\x30\x85\x00\x00\x00\x00\x00"), Front::Invalid);
        assert_eq!(at(Packet::Asn1, b"\x30\x80"), Front::Packet(2));
        // A tag without end.
        assert_eq!(at(Packet::Asn1, &[0xff; 1459]), Front::Incomplete);
        assert_eq!(at(Packet::Asn1, &[0xff; 1460]), Front::Invalid);
    }

    #[test]
    fn giop_and_fastcgi() {
        assert_eq!(at(Packet::Cdr, b"GIOP\x01\x00\x00\x00\x00\x00\x00\x05"), Front::Packet(17));
        assert_eq!(at(Packet::Cdr, b"GIOP\x01\x00\x01\x00\x05\x00\x00\x00"), Front::Packet(17));
        assert_eq!(at(Packet::Cdr, b"XIOP\x01\x00\x01\x00\x05\x00\x00"), Front::Incomplete);
        assert_eq!(at(Packet::Cdr, b"XIOP\x01\x00\x01\x00\x05\x00\x00\x00"), Front::Invalid);
        let fcgi = b"\x01\x01\x00\x01\x00\x02\x03\x00ab___";
        assert_eq!(at(Packet::Fcgi, fcgi), Front::Packet(13));
        assert_eq!(body(Packet::Fcgi, fcgi), b"\x01\x01\x00\x01\x00\x02\x03\x00ab");
    }

    #[test]
    fn lines_are_cut_at_the_buffer() {
        let limits = Limits { buffer: 4, ..NONE };
        assert_eq!(limited(Packet::Line, b"abc\nd", limits), Front::Packet(4));
        assert_eq!(limited(Packet::Line, b"abcd\n", limits), Front::Packet(4));
        assert_eq!(limited(Packet::Line, b"abc", limits), Front::Incomplete);
        assert_eq!(limited(Packet::Line, b"abcdef", limits), Front::Packet(4));
        let limits = Limits { packet_size: 3, ..NONE };
        assert_eq!(limited(Packet::Line, b"ab\n", limits), Front::Packet(3));
        assert_eq!(limited(Packet::Line, b"abc\n", limits), Front::Invalid);
        assert_eq!(limited(Packet::Line, b"abcd", limits), Front::Invalid);
        let limits = Limits { delimiter: b'x', ..NONE };
        assert_eq!(limited(Packet::Line, b"a\nx\n", limits), Front::Packet(3));
    }

    #[test]
    fn header_fields_go_on_in_the_next_line() {
        assert_eq!(at(Packet::Http, b"GET / HTTP/1.1\r\n H"), Front::Packet(16));
        assert_eq!(at(Packet::Httph, b"A: b\r\n"), Front::Incomplete);
        assert_eq!(at(Packet::Httph, b"A: b\r\n c\r\nD"), Front::Packet(10));
        assert_eq!(at(Packet::Httph, b"\r\n"), Front::Packet(2));
        assert_eq!(at(Packet::Httph, b"\r\n A"), Front::Packet(2));
        let limits = Limits { packet_size: 5, ..NONE };
        assert_eq!(limited(Packet::Http, b"GET /", limits), Front::Invalid);
        assert_eq!(limited(Packet::Http, b"GET \n", limits), Front::Packet(5));
        assert_eq!(limited(Packet::Http, b"GET /\n", limits), Front::Invalid);
    }

    #[test]
    fn what_is_sent_has_its_length_in_front() {
        assert_eq!(header(Packet::Raw, 5_000_000), Some(([0; 4], 0)));
        assert_eq!(header(Packet::One, 255), Some(([255, 0, 0, 0], 1)));
        assert_eq!(header(Packet::One, 256), None);
        assert_eq!(header(Packet::Two, 258), Some(([1, 2, 0, 0], 2)));
        assert_eq!(header(Packet::Four, 1), Some(([0, 0, 0, 1], 4)));
    }
}
