//! Inflating any bytes stays within its limit, and deflated messages inflate to the same bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../src/websocket/deflate.rs"]
mod deflate;
#[path = "../../src/websocket/frame.rs"]
mod frame;

const MOST: usize = 100_000;

fuzz_target!(|input: &[u8]| {
    let [settings, cut, bytes @ ..] = input else { return };
    let (window, message) = bytes.split_at(usize::from(*cut).min(bytes.len()));
    let mut plain = vec![];
    if deflate::inflate(window, message, MOST, &mut plain) == Ok(true) {
        assert!(plain.len() <= MOST);
    }
    assert!(plain.len() <= MOST + 1);

    let (level, bits) = (settings % 9 + 1, settings / 9 % 7 + 9);
    let mut there = vec![];
    deflate::deflate(window, message, level, bits, &mut there).expect("is deflated");
    let mut back = vec![];
    assert_eq!(deflate::inflate(window, &there, message.len(), &mut back), Ok(true));
    assert_eq!(back, message);
});
