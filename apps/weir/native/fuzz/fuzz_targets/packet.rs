//! For any input in any pieces: no packet exceeds its limit or the available bytes, none is empty,
//! waiting bytes are bounded, and pieces give the same packets as the whole.
#![no_main]

use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;

#[path = "../../src/value/http.rs"]
mod http;
#[path = "../../src/value/packet.rs"]
mod packet;

use packet::{Front, Limits, Packet, body, front, header};

const TYPES: [Packet; 14] = [
    Packet::Raw,
    Packet::One,
    Packet::Two,
    Packet::Four,
    Packet::Asn1,
    Packet::Sunrm,
    Packet::Cdr,
    Packet::Fcgi,
    Packet::Tpkt,
    Packet::Line,
    Packet::Http,
    Packet::Httph,
    Packet::HttpBin,
    Packet::HttphBin,
];

/// The longest header of fixed length, for which a buffer needs room.
const HEADER: usize = 12;

#[derive(Arbitrary, Debug)]
struct Stream<'a> {
    packet: u8,
    packet_size: Size,
    buffer: Size,
    delimiter: u8,
    /// Sizes of arriving pieces, repeated in a cycle.
    pieces: [u8; 8],
    bytes: &'a [u8],
}

/// Small sizes reach the limits with small inputs.
#[derive(Arbitrary, Clone, Copy, Debug)]
enum Size {
    Small(u8),
    Large(u32),
}

impl Size {
    fn bytes(self) -> usize {
        match self {
            Size::Small(size) => size.into(),
            Size::Large(size) => size as usize % (64 * 1024 * 1024 + 1),
        }
    }
}

/// Result of parsing a stream: packets, and whether the rest was invalid.
#[derive(Debug, PartialEq)]
struct Parsed<'a> {
    packets: Vec<&'a [u8]>,
    invalid: bool,
}

/// Takes packets like the engine: incomplete bytes are kept, and more arrive behind them.
fn parse<'a>(packet: Packet, limits: Limits, bytes: &'a [u8], mut pieces: impl Iterator<Item = usize>) -> Parsed<'a> {
    let (mut packets, mut in_headers) = (Vec::new(), false);
    let (mut start, mut end) = (0, 0);
    loop {
        let there = &bytes[start..end];
        match front(packet, there, limits, &mut in_headers) {
            Front::Packet(size) => {
                assert!(size > 0, "an empty packet would be found for ever");
                assert!(size <= i32::MAX as usize);
                if limits.packet_size != 0 && packet != Packet::Raw {
                    assert!(size.saturating_sub(longest_header(packet, there)) <= limits.packet_size);
                }
                if size <= there.len() {
                    let taken = &there[..size];
                    assert!(body(packet, taken).len() <= taken.len());
                    if packet.is_http() {
                        let _ = http::parse(taken, &mut in_headers);
                    }
                    packets.push(taken);
                    start += size;
                    continue;
                }
            }
            Front::Incomplete => {
                assert!(there.len() < limits.buffer.max(limits.packet_size).max(1), "what waits is not bounded")
            }
            Front::Invalid => return Parsed { packets, invalid: true },
        }
        if end == bytes.len() {
            return Parsed { packets, invalid: false };
        }
        end = bytes.len().min(end + pieces.next().unwrap_or(usize::MAX).max(1));
    }
}

/// Maximum bytes that `packet_size` does not count.
fn longest_header(packet: Packet, bytes: &[u8]) -> usize {
    match packet {
        Packet::Asn1 => bytes.len(),
        Packet::Line => 0,
        // A lone empty line is accepted whatever the limit, as in OTP.
        Packet::Http | Packet::Httph | Packet::HttpBin | Packet::HttphBin => 2,
        _ => HEADER,
    }
}

/// Whether the result may depend on how much of a packet without a known length has arrived: a
/// reader stops when `buffer` is full.
fn is_bounded_by_arrival(packet: Packet) -> bool {
    packet.is_http() || matches!(packet, Packet::Asn1 | Packet::Line)
}

fuzz_target!(|stream: Stream| {
    let packet = TYPES[usize::from(stream.packet) % TYPES.len()];
    let limits = Limits {
        packet_size: stream.packet_size.bytes(),
        buffer: stream.buffer.bytes().max(1),
        delimiter: stream.delimiter,
    };
    let bytes = stream.bytes;
    let pieces = stream.pieces.into_iter().map(usize::from).cycle();
    let whole = parse(packet, limits, bytes, std::iter::empty());
    let pieced = parse(packet, limits, bytes, pieces);
    if packet == Packet::Raw {
        assert_eq!(whole.packets.concat(), pieced.packets.concat());
    } else if is_bounded_by_arrival(packet) || limits.buffer <= HEADER {
        let common = whole.packets.len().min(pieced.packets.len());
        assert_eq!(whole.packets[..common], pieced.packets[..common]);
        // Only a stream that was found invalid has fewer packets.
        assert!(whole.invalid || whole.packets.len() >= pieced.packets.len());
        assert!(pieced.invalid || pieced.packets.len() >= whole.packets.len());
    } else {
        assert_eq!(whole, pieced);
    }

    // Sent data is read back unchanged.
    let body_size = bytes.len();
    if let Some((head, size)) = header(packet, body_size)
        && size > 0
    {
        let sent = [&head[..size], bytes].concat();
        let unlimited = Limits { packet_size: 0, buffer: sent.len() + 1, delimiter: 0 };
        assert_eq!(front(packet, &sent, unlimited, &mut false), Front::Packet(sent.len()));
        assert_eq!(body(packet, &sent), bytes);
    }
});
