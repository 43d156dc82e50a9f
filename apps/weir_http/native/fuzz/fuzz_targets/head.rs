//! Heads from any bytes: ranges are valid, further bytes do not change the result, and no prefix
//! of an accepted head is refused.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../src/fields.rs"]
mod fields;
#[path = "../../src/head.rs"]
mod head;
#[path = "../../src/meaning.rs"]
mod meaning;
#[path = "../../src/refusal.rs"]
mod refusal;
#[path = "../../src/target.rs"]
mod target;

use head::{Head, Limits, parse, parse_trailers};

const LIMITS: Limits = Limits { line: 512, head: 2048, fields: 16 };

fn check(bytes: &[u8], head: &Head) {
    assert!(head.end <= bytes.len() && head.end <= LIMITS.head);
    assert!(bytes[..head.end].ends_with(b"\r\n\r\n"));
    assert!(bytes[head.method.clone()].iter().all(|byte| byte.is_ascii_uppercase() || b"-_".contains(byte)));
    for range in [&head.path, &head.query].into_iter().flatten() {
        assert!(bytes[range.clone()].iter().all(|byte| matches!(byte, b'!'..=b'~')));
    }
    for (name, value) in fields::iter(&bytes[head.fields.clone()]) {
        assert!(!name.is_empty() && name.iter().all(|&byte| fields::is_token(byte)));
        assert!(value.iter().all(|&byte| fields::is_value(byte)));
    }
}

fuzz_target!(|input: &[u8]| {
    let Some((&cut, bytes)) = input.split_first() else { return };
    let _ = parse_trailers(bytes, LIMITS);
    let parsed = parse(bytes, LIMITS);
    let Ok(Some(head)) = &parsed else { return };
    check(bytes, head);
    let mut more = bytes.to_vec();
    more.extend_from_slice(b"more");
    assert_eq!(parse(&more, LIMITS), parsed);
    assert_eq!(parse(&bytes[..head.end], LIMITS), parsed);
    assert_eq!(parse(&bytes[..usize::from(cut) % head.end], LIMITS), Ok(None));
});
