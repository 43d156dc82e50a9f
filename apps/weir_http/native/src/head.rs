//! The head of a request: request line and fields.
//!
//! httparse checks the grammar, except line ends. [`crate::meaning`] evaluates the fields.

use std::mem::MaybeUninit;
use std::ops::Range;

use httparse::{Error, Header, ParserConfig, Status};
use memchr::{memchr, memchr_iter};

use crate::meaning::{Body, Meaning, check_trailers};
use crate::refusal::Refusal;
use crate::target::{self, Target};

/// Upper bound of [`Limits::fields`].
pub const MOST_FIELDS: usize = 256;

/// See [`Target::is_plain`].
pub const PLAIN_PATH: u32 = 8;

/// Limits of a head: bytes of its request line and of the whole, and number of fields.
#[derive(Clone, Copy)]
pub struct Limits {
    pub line: usize,
    pub head: usize,
    pub fields: usize,
}

/// A parsed head, as ranges of the bytes parsed.
#[derive(Debug, PartialEq, Eq)]
pub struct Head {
    pub method: Range<usize>,
    pub path: Option<Range<usize>>,
    pub query: Option<Range<usize>>,
    /// The lines of the fields.
    pub fields: Range<usize>,
    pub flags: u32,
    pub body: Body,
    /// The offset of the body.
    pub end: usize,
}

/// Parses the head at the beginning of some bytes; `None` if it is incomplete.
pub fn parse(bytes: &[u8], limits: Limits) -> Result<Option<Head>, Refusal> {
    let mut room = [const { MaybeUninit::<Header>::uninit() }; MOST_FIELDS];
    let fields = limits.fields.min(MOST_FIELDS);
    let mut request = httparse::Request::new(&mut []);
    let parsed = ParserConfig::default()
        .parse_request_with_uninit_headers(&mut request, bytes, &mut room[..fields])
        .map_err(refusal);
    let end = match parsed {
        Ok(Status::Complete(end)) => end,
        Ok(Status::Partial) => return incomplete(bytes, limits).map(|()| None),
        // A wrong version is reported at the end of its line, so that the result does not depend
        // on how the bytes are split.
        Err(Refusal::Version) if !has_line(bytes) => return incomplete(bytes, limits).map(|()| None),
        Err(refusal) => return Err(refusal_of_line(bytes, refusal)),
    };
    check_lines(&bytes[..end])?;
    let (Some(method), Some(target)) = (request.method, request.path) else { return Err(Refusal::Syntax) };
    let method_begin = offset(bytes, method.as_bytes());
    let target_begin = offset(bytes, target.as_bytes());
    // ` HTTP/1.1` follows the target.
    if target_begin - method_begin + target.len() + 9 > limits.line {
        return Err(Refusal::LineTooLong);
    }
    if end > limits.head {
        return Err(Refusal::FieldsTooLarge);
    }
    if method == "CONNECT" || method == "TRACE" || !method.bytes().all(is_of_a_method) {
        return Err(Refusal::Method);
    }
    let Target { path, query, authority, is_plain } = target::parse(target.as_bytes(), method == "OPTIONS")?;
    let is_1_1 = request.version == Some(1);
    let meaning = Meaning::of(request.headers)?;
    meaning.check_host(authority.map(|range| &target.as_bytes()[range]), is_1_1)?;
    let shift = |range: Range<usize>| range.start + target_begin..range.end + target_begin;
    let begin = request.headers.first().map_or(end - 2, |field| offset(bytes, field.name.as_bytes()));
    Ok(Some(Head {
        method: method_begin..method_begin + method.len(),
        path: path.map(shift),
        query: query.map(shift),
        fields: begin..end - 2,
        flags: meaning.flags(is_1_1) | if is_plain { PLAIN_PATH } else { 0 },
        body: meaning.body(is_1_1)?,
        end,
    }))
}

/// All registered methods consist of these characters. Other names come from a body whose length
/// was lost on the way, such as `helloGET`: the connection is closed after them.
fn is_of_a_method(byte: u8) -> bool {
    byte.is_ascii_uppercase() || byte == b'-' || byte == b'_'
}

/// Returns the offset of a slice within some bytes.
fn offset(bytes: &[u8], slice: &[u8]) -> usize {
    slice.as_ptr() as usize - bytes.as_ptr() as usize
}

fn refusal(error: Error) -> Refusal {
    match error {
        Error::TooManyHeaders => Refusal::FieldsTooLarge,
        Error::Version => Refusal::Version,
        _ => Refusal::Syntax,
    }
}

/// Whether the request line is complete.
fn has_line(bytes: &[u8]) -> bool {
    let begin = bytes.iter().position(|byte| !b"\r\n".contains(byte)).unwrap_or(bytes.len());
    memchr(b'\n', &bytes[begin..]).is_some()
}

/// A well-formed version is one that we do not support; anything else is a syntax error.
fn refusal_of_line(bytes: &[u8], refusal: Refusal) -> Refusal {
    if refusal != Refusal::Version {
        return refusal;
    }
    let begin = bytes.iter().position(|byte| !b"\r\n".contains(byte)).unwrap_or(bytes.len());
    let line = &bytes[begin..][..memchr(b'\n', &bytes[begin..]).unwrap_or(bytes.len() - begin)];
    let version = line.splitn(3, |&byte| byte == b' ').nth(2).unwrap_or_default();
    match version.strip_suffix(b"\r").unwrap_or(version) {
        [b'H', b'T', b'T', b'P', b'/', major, b'.', minor] if major.is_ascii_digit() && minor.is_ascii_digit() => {
            Refusal::Version
        }
        _ => Refusal::Syntax,
    }
}

/// Checks whether an incomplete head is already over a limit.
fn incomplete(bytes: &[u8], limits: Limits) -> Result<(), Refusal> {
    let begin = bytes.iter().position(|byte| !b"\r\n".contains(byte)).unwrap_or(bytes.len());
    let line = memchr(b'\n', &bytes[begin..]).unwrap_or(bytes.len() - begin);
    if line > limits.line {
        // Without the end of a method, this is not a request with a long target.
        let has_method = memchr(b' ', &bytes[begin..begin + line]).is_some();
        Err(if has_method { Refusal::LineTooLong } else { Refusal::Syntax })
    } else if bytes.len() > limits.head {
        Err(Refusal::FieldsTooLarge)
    } else {
        Ok(())
    }
}

/// Refuses lines that end in a bare LF, which httparse accepts.
pub fn check_lines(head: &[u8]) -> Result<(), Refusal> {
    match memchr_iter(b'\n', head).all(|at| at > 0 && head[at - 1] == b'\r') {
        true => Ok(()),
        false => Err(Refusal::BareLineFeed),
    }
}

/// The range of lines of fields, and the offset after the empty line.
pub type Lines = (Range<usize>, usize);

/// Parses the trailer section of a chunked body.
pub fn parse_trailers(bytes: &[u8], limits: Limits) -> Result<Option<Lines>, Refusal> {
    parse_fields(bytes, limits, check_trailers)
}

/// Parses the fields of a part of a form, like trailers, but allows any names.
pub fn parse_part_head(bytes: &[u8], limits: Limits) -> Result<Option<Lines>, Refusal> {
    parse_fields(bytes, limits, |_| Ok(()))
}

fn parse_fields(
    bytes: &[u8],
    limits: Limits,
    check: fn(&[Header]) -> Result<(), Refusal>,
) -> Result<Option<Lines>, Refusal> {
    let mut room = [httparse::EMPTY_HEADER; MOST_FIELDS];
    match httparse::parse_headers(bytes, &mut room[..limits.fields.min(MOST_FIELDS)]).map_err(refusal)? {
        Status::Complete((end, fields)) if end <= limits.head => {
            check_lines(&bytes[..end])?;
            check(fields)?;
            Ok(Some((0..end - 2, end)))
        }
        Status::Partial if bytes.len() <= limits.head => Ok(None),
        _ => Err(Refusal::FieldsTooLarge),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meaning::{KEEP_ALIVE, VERSION_1_1};

    const LIMITS: Limits = Limits { line: 8192, head: 16384, fields: 100 };

    fn parsed(text: &str) -> Result<Option<Head>, Refusal> {
        parse(text.as_bytes(), LIMITS)
    }

    fn complete(text: &str) -> Head {
        parsed(text).expect("is accepted").expect("is complete")
    }

    #[test]
    fn ranges() {
        let text = "\r\nGET /a?b HTTP/1.1\r\nHost: a\r\nX: y\r\n\r\nrest";
        let head = complete(text);
        assert_eq!(&text[head.method], "GET");
        assert_eq!(head.path.map(|range| &text[range]), Some("/a"));
        assert_eq!(head.query.map(|range| &text[range]), Some("b"));
        assert_eq!(&text[head.fields], "Host: a\r\nX: y\r\n");
        assert_eq!(&text[head.end..], "rest");
        assert_eq!(head.flags, KEEP_ALIVE | VERSION_1_1 | PLAIN_PATH);
        assert_eq!(head.body, Body::Length(0));
        let old = complete("GET / HTTP/1.0\r\n\r\n");
        assert_eq!((old.fields.len(), old.flags), (0, PLAIN_PATH));
    }

    #[test]
    fn every_prefix_is_incomplete() {
        let text = "GET http://a/ HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n";
        for end in 0..text.len() {
            assert_eq!(parsed(&text[..end]), Ok(None), "{end}");
        }
        assert_eq!(complete(text).body, Body::Length(5));
    }

    #[test]
    fn lines() {
        for bad in [
            "GET / HTTP/1.1\nHost: a\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\n\r\n",
            "\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
        ] {
            assert_eq!(parsed(bad), Err(Refusal::BareLineFeed), "{bad}");
        }
        for bad in [
            "GET / HTTP/1.1\r\n Host: a\r\n\r\n",
            "GET / HTTP/1.1\r\nHost : a\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\n b\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\0\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\rb\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\n: b\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\nb\r\n\r\n",
            "GET  / HTTP/1.1\r\nHost: a\r\n\r\n",
            "GET / http/1.1\r\nHost: a\r\n\r\n",
            "GET / HTTP/1\r\nHost: a\r\n\r\n",
            "GET / HTTP/01.1\r\nHost: a\r\n\r\n",
            "GET / HTTP/1.1 \r\nHost: a\r\n\r\n",
            "GET /\r\nHost: a\r\n\r\n",
            "GET / b HTTP/1.1\r\nHost: a\r\n\r\n",
        ] {
            assert_eq!(parsed(bad), Err(Refusal::Syntax), "{bad:?}");
        }
        for bad in ["GET / HTTP/1.2\r\nHost: a\r\n\r\n", "PRI * HTTP/2.0\r\n\r\n"] {
            assert_eq!(parsed(bad), Err(Refusal::Version), "{bad:?}");
            let line = bad.find('\n').expect("a line");
            assert!((0..line).all(|end| parsed(&bad[..end]) == Ok(None)), "{bad:?}");
        }
    }

    #[test]
    fn limits() {
        let limits = Limits { line: 20, head: 60, fields: 2 };
        let text = |path: &str, fields: &str| format!("GET /{path} HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
        assert!(parse(text("123456", "A: b\r\n").as_bytes(), limits).is_ok());
        assert_eq!(parse(text("1234567", "").as_bytes(), limits), Err(Refusal::LineTooLong));
        assert_eq!(parse(text("", "A: b\r\nC: d\r\n").as_bytes(), limits), Err(Refusal::FieldsTooLarge));
        assert_eq!(
            parse(text("", &format!("A: {}\r\n", "b".repeat(40))).as_bytes(), limits),
            Err(Refusal::FieldsTooLarge)
        );
        assert_eq!(parse(b"GET /1234567890123456", limits), Err(Refusal::LineTooLong));
        assert_eq!(
            parse(format!("GET / HTTP/1.1\r\nA: {}", "b".repeat(50)).as_bytes(), limits),
            Err(Refusal::FieldsTooLarge)
        );
        assert_eq!(parse("\r\n".repeat(31).as_bytes(), limits), Err(Refusal::FieldsTooLarge));
    }

    #[test]
    fn methods() {
        for good in ["PROPFIND", "VERSION-CONTROL", "A_B"] {
            assert!(complete(&format!("{good} / HTTP/1.1\r\nHost: a\r\n\r\n")).method == (0..good.len()));
        }
        for bad in ["get", "helloGET", "POST1", "GET%"] {
            assert_eq!(parsed(&format!("{bad} / HTTP/1.1\r\nHost: a\r\n\r\n")), Err(Refusal::Method), "{bad}");
        }
        assert_eq!(parsed("CONNECT a:80 HTTP/1.1\r\nHost: a:80\r\n\r\n"), Err(Refusal::Method));
        assert_eq!(parsed("TRACE / HTTP/1.1\r\nHost: a\r\n\r\n"), Err(Refusal::Method));
    }

    #[test]
    fn trailers() {
        assert_eq!(parse_trailers(b"\r\nrest", LIMITS), Ok(Some((0..0, 2))));
        assert_eq!(parse_trailers(b"A: b\r\n\r\n", LIMITS), Ok(Some((0..6, 8))));
        assert_eq!(parse_trailers(b"A: b\r\n", LIMITS), Ok(None));
        assert_eq!(parse_trailers(b"A: b\n\r\n", LIMITS), Err(Refusal::BareLineFeed));
        assert_eq!(parse_trailers(b"\n", LIMITS), Err(Refusal::BareLineFeed));
        assert_eq!(parse_trailers(b"A b\r\n\r\n", LIMITS), Err(Refusal::Syntax));
        for (bad, refusal) in [
            ("Content-Length: 5", Refusal::ContentLength),
            ("transfer-encoding: chunked", Refusal::TransferEncoding),
            ("A: b\r\nHOST: a", Refusal::Host),
        ] {
            assert_eq!(parse_trailers(format!("{bad}\r\n\r\n").as_bytes(), LIMITS), Err(refusal), "{bad}");
        }
    }
}
