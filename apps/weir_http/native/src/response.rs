//! The head of a response. Fields of handlers are checked: no byte can end a field or begin
//! another.

use crate::date;
use crate::fields::{is_token, is_value};

/// Sends `Connection: close`, whatever the handler returned.
pub const CLOSE: u32 = 1;
/// Sends `Connection: keep-alive`, for HTTP/1.0.
pub const KEEP_ALIVE: u32 = 2;
/// Omits `Content-Length`: the status has no body, or the body ends with the connection.
pub const NO_LENGTH: u32 = 4;
/// Sends `Transfer-Encoding: chunked` instead of a length.
pub const CHUNKED: u32 = 8;
/// Sends `Connection: upgrade`, which handlers cannot.
pub const UPGRADE: u32 = 16;

/// Fields that only the server may set: a second one, or another value, would make the client read
/// something else than we send. A handler may set Connection to `close` only.
const OURS: [&[u8]; 3] = [b"content-length", b"transfer-encoding", b"keep-alive"];

/// Fields about framing, routing or access: they must be known before the body, so they may not be
/// trailers (RFC 9110, 6.5.1).
const IN_HEADS: [&[u8]; 15] = [
    b"age",
    b"connection",
    b"date",
    b"expires",
    b"retry-after",
    b"trailer",
    b"host",
    b"content-encoding",
    b"content-type",
    b"content-range",
    b"cache-control",
    b"set-cookie",
    b"www-authenticate",
    b"location",
    b"vary",
];

/// A head in progress.
pub struct Head<'a> {
    out: &'a mut Vec<u8>,
    has_date: bool,
    closes: bool,
}

/// The name is not a token, or is reserved for the server; or the value has a forbidden byte.
#[derive(Debug, PartialEq, Eq)]
pub struct Forbidden;

fn is_field(name: &[u8], value: &[u8]) -> bool {
    !name.is_empty() && name.iter().all(|&byte| is_token(byte)) && value.iter().all(|&byte| is_value(byte))
}

fn is_among(name: &[u8], names: &[&[u8]]) -> bool {
    names.iter().any(|known| name.eq_ignore_ascii_case(known))
}

fn line(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    for part in [name, b": ", value, b"\r\n"] {
        out.extend_from_slice(part);
    }
}

/// Adds a trailer field.
pub fn trailer(out: &mut Vec<u8>, name: &[u8], value: &[u8]) -> Result<(), Forbidden> {
    if !is_field(name, value) || is_among(name, &OURS) || is_among(name, &IN_HEADS) {
        return Err(Forbidden);
    }
    line(out, name, value);
    Ok(())
}

impl<'a> Head<'a> {
    /// Begins a head.
    pub fn new(out: &'a mut Vec<u8>, status: u16) -> Self {
        out.clear();
        match status {
            200 => out.extend_from_slice(b"HTTP/1.1 200 OK\r\n"),
            _ => {
                out.extend_from_slice(b"HTTP/1.1 ");
                decimal(out, u64::from(status));
                out.push(b' ');
                out.extend_from_slice(reason(status).as_bytes());
                out.extend_from_slice(b"\r\n");
            }
        }
        Head { out, has_date: false, closes: false }
    }

    /// Adds a field.
    pub fn field(&mut self, name: &[u8], value: &[u8]) -> Result<(), Forbidden> {
        if !is_field(name, value) || is_among(name, &OURS) {
            return Err(Forbidden);
        }
        if name.eq_ignore_ascii_case(b"connection") {
            self.closes = true;
            return if value.eq_ignore_ascii_case(b"close") { Ok(()) } else { Err(Forbidden) };
        }
        self.has_date |= name.eq_ignore_ascii_case(b"date");
        line(self.out, name, value);
        Ok(())
    }

    /// Ends the head, for a body of that length. Returns whether the connection is closed after
    /// it.
    pub fn end(self, flags: u32, length: u64) -> bool {
        let closes = self.closes || flags & CLOSE != 0;
        let out = self.out;
        if flags & CHUNKED != 0 {
            out.extend_from_slice(b"transfer-encoding: chunked\r\n");
        } else if flags & NO_LENGTH == 0 {
            out.extend_from_slice(b"content-length: ");
            decimal(out, length);
            out.extend_from_slice(b"\r\n");
        }
        if !self.has_date {
            out.extend_from_slice(b"date: ");
            out.extend_from_slice(&date::now());
            out.extend_from_slice(b"\r\n");
        }
        if closes {
            out.extend_from_slice(b"connection: close\r\n");
        } else if flags & KEEP_ALIVE != 0 {
            out.extend_from_slice(b"connection: keep-alive\r\n");
        }
        if flags & UPGRADE != 0 {
            out.extend_from_slice(b"connection: upgrade\r\n");
        }
        out.extend_from_slice(b"\r\n");
        closes
    }
}

fn decimal(out: &mut Vec<u8>, number: u64) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    let mut rest = number;
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

/// Returns the reason phrase from the registry of IANA; empty for other numbers.
fn reason(status: u16) -> &'static str {
    match status {
        101 => "Switching Protocols",
        200 => "OK",
        201 => "Created",
        202 => "Accepted",
        203 => "Non-Authoritative Information",
        204 => "No Content",
        205 => "Reset Content",
        206 => "Partial Content",
        207 => "Multi-Status",
        208 => "Already Reported",
        226 => "IM Used",
        300 => "Multiple Choices",
        301 => "Moved Permanently",
        302 => "Found",
        303 => "See Other",
        304 => "Not Modified",
        305 => "Use Proxy",
        307 => "Temporary Redirect",
        308 => "Permanent Redirect",
        400 => "Bad Request",
        401 => "Unauthorized",
        402 => "Payment Required",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        406 => "Not Acceptable",
        407 => "Proxy Authentication Required",
        408 => "Request Timeout",
        409 => "Conflict",
        410 => "Gone",
        411 => "Length Required",
        412 => "Precondition Failed",
        413 => "Content Too Large",
        414 => "URI Too Long",
        415 => "Unsupported Media Type",
        416 => "Range Not Satisfiable",
        417 => "Expectation Failed",
        421 => "Misdirected Request",
        422 => "Unprocessable Content",
        423 => "Locked",
        424 => "Failed Dependency",
        425 => "Too Early",
        426 => "Upgrade Required",
        428 => "Precondition Required",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        451 => "Unavailable For Legal Reasons",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        505 => "HTTP Version Not Supported",
        506 => "Variant Also Negotiates",
        507 => "Insufficient Storage",
        508 => "Loop Detected",
        511 => "Network Authentication Required",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(status: u16, fields: &[(&str, &str)], flags: u32, length: u64) -> Result<String, Forbidden> {
        let mut out = b"what was there before".to_vec();
        let mut head = Head::new(&mut out, status);
        for (name, value) in fields {
            head.field(name.as_bytes(), value.as_bytes())?;
        }
        head.end(flags, length);
        Ok(String::from_utf8(out).expect("text"))
    }

    #[test]
    fn heads() {
        let date = [("Date", "now")];
        assert_eq!(
            made(200, &date, 0, 12).as_deref(),
            Ok("HTTP/1.1 200 OK\r\nDate: now\r\ncontent-length: 12\r\n\r\n")
        );
        assert_eq!(
            made(404, &date, CLOSE, 0).as_deref(),
            Ok("HTTP/1.1 404 Not Found\r\nDate: now\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        );
        assert_eq!(
            made(299, &date, KEEP_ALIVE | NO_LENGTH, 7).as_deref(),
            Ok("HTTP/1.1 299 \r\nDate: now\r\nconnection: keep-alive\r\n\r\n")
        );
        assert_eq!(
            made(200, &[("Connection", "close"), ("Date", "now")], KEEP_ALIVE, 0).as_deref(),
            Ok("HTTP/1.1 200 OK\r\nDate: now\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        );
        assert_eq!(
            made(200, &date, CHUNKED, 0).as_deref(),
            Ok("HTTP/1.1 200 OK\r\nDate: now\r\ntransfer-encoding: chunked\r\n\r\n")
        );
        assert_eq!(
            made(101, &date, NO_LENGTH | UPGRADE, 0).as_deref(),
            Ok("HTTP/1.1 101 Switching Protocols\r\nDate: now\r\nconnection: upgrade\r\n\r\n")
        );
        let dated = made(200, &[("a", "b")], 0, u64::MAX).expect("is made");
        assert!(dated.starts_with("HTTP/1.1 200 OK\r\na: b\r\ncontent-length: 18446744073709551615\r\ndate: "));
    }

    #[test]
    fn nothing_can_be_injected() {
        for (name, value) in [
            ("a", "b\r\nc: d"),
            ("a", "b\n"),
            ("a", "b\r"),
            ("a", "\0"),
            ("a", "\x7f"),
            ("a\r\nb", "c"),
            ("a:", "c"),
            ("", "c"),
            (" a", "c"),
            ("a b", "c"),
            ("Content-Length", "5"),
            ("transfer-encoding", "chunked"),
            ("connection", "upgrade"),
        ] {
            assert_eq!(made(200, &[(name, value)], 0, 0), Err(Forbidden), "{name:?} {value:?}");
        }
        assert!(made(200, &[("x-a", "\tcaf\u{e9} \"b\"; c=d"), ("empty", "")], 0, 0).is_ok());
    }

    #[test]
    fn trailers() {
        let mut out = Vec::new();
        assert_eq!(trailer(&mut out, b"x-sum", b"5"), Ok(()));
        assert_eq!(trailer(&mut out, b"Server-Timing", b"db;dur=53"), Ok(()));
        for (name, value) in [
            ("a", "b\r\nc: d"),
            ("a:", "b"),
            ("Content-Length", "5"),
            ("content-type", "text/plain"),
            ("Trailer", "a"),
            ("Date", ""),
        ] {
            assert_eq!(trailer(&mut out, name.as_bytes(), value.as_bytes()), Err(Forbidden), "{name:?} {value:?}");
        }
        assert_eq!(out, b"x-sum: 5\r\nServer-Timing: db;dur=53\r\n");
    }
}
