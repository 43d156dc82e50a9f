//! Targets and authorities from any bytes: ranges are valid and in order, and contain what their
//! names say.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../src/refusal.rs"]
mod refusal;
#[path = "../../src/target.rs"]
mod target;

use target::{is_authority, parse};

fuzz_target!(|bytes: &[u8]| {
    if is_authority(bytes) {
        assert!(!bytes.is_empty() && !bytes.iter().any(|byte| b"/?#@, \r\n\0".contains(byte)));
    }
    for is_options in [false, true] {
        let Ok(target) = parse(bytes, is_options) else { continue };
        let path = target.path.map_or(&b"/"[..], |range| &bytes[range]);
        assert!(path.starts_with(b"/") || (is_options && path == b"*"));
        if target.is_plain {
            assert!(!path.contains(&b'%') && !path.windows(2).any(|pair| pair == b"//" || pair == b"/."));
        }
        if let Some(query) = target.query {
            assert_eq!((bytes[query.start - 1], query.end), (b'?', bytes.len()));
        }
        if let Some(authority) = target.authority {
            assert!(!authority.is_empty() && bytes[..authority.start].ends_with(b"://"));
        }
    }
});
