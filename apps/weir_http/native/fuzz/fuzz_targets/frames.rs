//! WebSocket frames from any bytes: splitting them does not change the result, and no message
//! exceeds its limit.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../src/websocket/decoder.rs"]
mod decoder;
#[path = "../../src/websocket/frame.rs"]
mod frame;
#[path = "../../src/websocket/mask.rs"]
mod mask;
#[path = "../../src/websocket/text.rs"]
mod text;

use decoder::{Decoder, Kind, Limits, Sink, Stop};

const MOST: u64 = 1000;

#[derive(Default)]
struct Items {
    items: Vec<(u8, Vec<u8>)>,
    message: Vec<u8>,
    plain: Vec<u8>,
}

impl Sink for Items {
    fn unmask(&mut self, masked: &[u8], key: [u8; 4]) -> &[u8] {
        self.plain = vec![0; masked.len()];
        mask::unmask(masked, &mut self.plain, key);
        &self.plain
    }
    fn piece(&mut self) {
        self.message.append(&mut self.plain);
        assert!(self.message.len() as u64 <= MOST);
    }
    fn end(&mut self, kind: Kind, is_compressed: bool) {
        self.message.append(&mut self.plain);
        assert!(self.message.len() as u64 <= MOST);
        if kind == Kind::Text && !is_compressed {
            assert!(std::str::from_utf8(&self.message).is_ok());
        }
        self.items.push((kind as u8, std::mem::take(&mut self.message)));
    }
    fn ping(&mut self) {
        assert!(self.plain.len() <= 125);
        self.items.push((9, self.plain.clone()));
    }
    fn pong(&mut self) {
        self.items.push((10, self.plain.clone()));
    }
    fn close(&mut self, code: Option<u16>) {
        assert!(code.is_none_or(frame::may_close));
        self.items.push((8, self.plain.clone()));
    }
}

/// Decodes pieces: the items, and whether decoding ended with a fault (`false`) or a close
/// (`true`).
fn decoded(pieces: &[&[u8]], may_compress: bool) -> (Vec<(u8, Vec<u8>)>, Option<bool>) {
    let limits = Limits { message: MOST, may_compress };
    let mut items = Items::default();
    let mut decoder = Decoder::default();
    let mut bytes = vec![];
    for piece in pieces {
        bytes.extend_from_slice(piece);
        loop {
            match decoder.decode(&bytes, limits, &mut items) {
                Err(_) => return (items.items, Some(false)),
                Ok(decoded) if decoded.stop == Stop::Closed => return (items.items, Some(true)),
                Ok(decoded) => {
                    bytes.drain(..decoded.end);
                    if decoded.stop == Stop::Input {
                        break;
                    }
                }
            }
        }
        assert!(bytes.len() < 132);
    }
    (items.items, None)
}

fuzz_target!(|input: &[u8]| {
    let [settings, cut, bytes @ ..] = input else { return };
    let may_compress = settings & 1 != 0;
    let whole = decoded(&[bytes], may_compress);
    let at = usize::from(*cut).min(bytes.len());
    assert_eq!(decoded(&[&bytes[..at], &bytes[at..]], may_compress), whole);
    let single: Vec<&[u8]> = bytes.chunks(1).collect();
    assert_eq!(decoded(&single, may_compress), whole);
});
