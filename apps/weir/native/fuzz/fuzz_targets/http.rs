//! For any line of HTTP: each parsed part is a part of the line, and the headers end at an empty
//! line.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../src/value/http.rs"]
mod http;

use http::{FIELDS, Line, METHODS, Name, Uri, parse};

/// The position of a part in its line.
fn position(line: &[u8], part: &[u8]) -> std::ops::Range<usize> {
    let start = (part.as_ptr() as usize).checked_sub(line.as_ptr() as usize).expect("a part of the line");
    assert!(start + part.len() <= line.len(), "a part of the line");
    start..start + part.len()
}

fn check_uri(line: &[u8], uri: &Uri) {
    match uri {
        Uri::Star => assert!(line.contains(&b'*')),
        Uri::Path(path) | Uri::Other(path) => assert!(!position(line, path).is_empty()),
        Uri::Absolute { host, port, path, .. } => {
            let host = position(line, host);
            assert_ne!(*port, Some(0));
            // Without a path it is the root.
            assert!(*path == b"/" || position(line, path).start >= host.end);
        }
        Uri::Scheme(scheme, rest) => {
            let (scheme, rest) = (position(line, scheme), position(line, rest));
            assert_eq!((line[scheme.end], scheme.end + 1), (b':', rest.start));
        }
    }
}

fn check(line: &[u8], parsed: &Line) {
    match parsed {
        Line::Request { method, uri, .. } => {
            match method {
                Name::Known(known) => assert!(line.starts_with(METHODS[*known].as_bytes())),
                Name::Other(method) => assert!(!method.is_empty() && line.starts_with(method)),
            }
            check_uri(line, uri);
        }
        Line::Response { reason, .. } => {
            assert!(line.starts_with(b"HTTP/"));
            position(line, reason);
        }
        Line::Field { name, original, value } => {
            let known = match name {
                Name::Known(known) => FIELDS[*known].as_bytes(),
                Name::Other(name) => name,
            };
            assert!(known.eq_ignore_ascii_case(original));
            let original = position(line, original);
            assert_eq!((original.start, line[original.end]), (0, b':'));
            assert!(position(line, value).start > original.end);
        }
        Line::EndOfHeaders => assert!(line.len() <= 2),
    }
}

fuzz_target!(|message: (bool, &[u8])| {
    let (mut in_headers, line) = message;
    let were_headers = in_headers;
    let parsed = parse(line, &mut in_headers);
    if let Some(parsed) = &parsed {
        check(line, parsed);
    }
    let expected = match parsed {
        Some(Line::EndOfHeaders) => false,
        Some(_) => true,
        None => were_headers,
    };
    assert_eq!(in_headers, expected);
});
