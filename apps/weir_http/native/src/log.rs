//! Lines of the access log. Text of a client may contain any byte except CR, LF and NUL. It is
//! escaped, so that it cannot end a line, a string or a field.

use std::io::Write as _;
use std::net::IpAddr;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::date;
use crate::fields;

/// A request that was answered.
pub struct Entry<'a> {
    pub peer: Peer<'a>,
    /// `None` if the bytes were not a valid request.
    pub request: Option<Request<'a>>,
    pub status: u16,
    pub bytes: u64,
    pub microseconds: u64,
    pub id: Option<&'a [u8]>,
}

pub enum Peer<'a> {
    Address(IpAddr),
    Path(&'a [u8]),
    Unknown,
}

pub struct Request<'a> {
    pub method: &'a [u8],
    pub path: &'a [u8],
    pub query: Option<&'a [u8]>,
    pub is_1_1: bool,
    pub fields: &'a [u8],
}

impl<'a> Request<'a> {
    fn field(&self, name: &[u8]) -> Option<&'a [u8]> {
        fields::iter(self.fields).find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    fn protocol(&self) -> &'static [u8] {
        if self.is_1_1 { b"HTTP/1.1" } else { b"HTTP/1.0" }
    }
}

fn number(out: &mut Vec<u8>, value: u64) {
    // Writing to a vector cannot fail.
    let _ = write!(out, "{value}");
}

/// Writes a line in the combined format of Apache and nginx.
pub fn combined(out: &mut Vec<u8>, entry: &Entry) {
    match entry.peer {
        Peer::Address(address) => {
            let _ = write!(out, "{address}");
        }
        Peer::Path(_) => out.extend_from_slice(b"unix:"),
        Peer::Unknown => out.push(b'-'),
    }
    out.extend_from_slice(b" - - [");
    // Sun, 06 Nov 1994 08:49:37 GMT
    let now = date::now();
    out.extend_from_slice(&now[5..7]);
    out.push(b'/');
    out.extend_from_slice(&now[8..11]);
    out.push(b'/');
    out.extend_from_slice(&now[12..16]);
    out.push(b':');
    out.extend_from_slice(&now[17..25]);
    out.extend_from_slice(b" +0000] \"");
    if let Some(request) = &entry.request {
        quoted(out, request.method);
        out.push(b' ');
        quoted(out, request.path);
        if let Some(query) = request.query {
            out.push(b'?');
            quoted(out, query);
        }
        out.push(b' ');
        out.extend_from_slice(request.protocol());
    } else {
        out.push(b'-');
    }
    out.extend_from_slice(b"\" ");
    number(out, entry.status.into());
    out.push(b' ');
    number(out, entry.bytes);
    for name in [&b"referer"[..], b"user-agent"] {
        out.extend_from_slice(b" \"");
        quoted(out, entry.request.as_ref().and_then(|request| request.field(name)).unwrap_or(b"-"));
        out.push(b'"');
    }
    out.push(b'\n');
}

const HEX: &[u8; 16] = b"0123456789abcdef";

/// Escapes like nginx: `\x16` for bytes that are not visible ASCII, for quotation marks and
/// backslashes.
fn quoted(out: &mut Vec<u8>, text: &[u8]) {
    for &byte in text {
        if matches!(byte, b' '..=b'~') && byte != b'"' && byte != b'\\' {
            out.push(byte);
        } else {
            out.extend_from_slice(&[b'\\', b'x', HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
        }
    }
}

/// Writes a line with a JSON object. Unknown members are left out.
pub fn json(out: &mut Vec<u8>, entry: &Entry) {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now = date::now();
    out.extend_from_slice(b"{\"time\":\"");
    out.extend_from_slice(&now[12..16]);
    out.push(b'-');
    let month = MONTHS.iter().position(|month| *month == &now[8..11]).map_or(0, |index| index + 1);
    out.extend_from_slice(format!("{month:02}").as_bytes());
    out.push(b'-');
    out.extend_from_slice(&now[5..7]);
    out.push(b'T');
    out.extend_from_slice(&now[17..25]);
    out.extend_from_slice(format!(".{:03}Z\"", since.subsec_millis()).as_bytes());
    match entry.peer {
        Peer::Address(address) => member(out, "peer", Some(address.to_string().as_bytes())),
        Peer::Path(path) => member(out, "peer", Some(path)),
        Peer::Unknown => {}
    }
    if let Some(request) = &entry.request {
        member(out, "method", Some(request.method));
        member(out, "path", Some(request.path));
        member(out, "query", request.query);
        member(out, "protocol", Some(request.protocol()));
    }
    for (name, value) in [
        (&b",\"status\":"[..], u64::from(entry.status)),
        (b",\"bytes\":", entry.bytes),
        (b",\"duration_us\":", entry.microseconds),
    ] {
        out.extend_from_slice(name);
        number(out, value);
    }
    member(out, "request_id", entry.id);
    if let Some(request) = &entry.request {
        member(out, "referer", request.field(b"referer"));
        member(out, "user_agent", request.field(b"user-agent"));
    }
    out.extend_from_slice(b"}\n");
}

const MONTHS: [&[u8; 3]; 12] =
    [b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec"];

fn member(out: &mut Vec<u8>, name: &str, value: Option<&[u8]>) {
    let Some(value) = value else { return };
    out.extend_from_slice(b",\"");
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"\":\"");
    // Invalid UTF-8 is treated as Latin-1, so that the line is valid JSON.
    let is_text = std::str::from_utf8(value).is_ok();
    for &byte in value {
        match byte {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
            0x20..=0x7e => out.push(byte),
            0x80.. if is_text => out.push(byte),
            _ => out.extend_from_slice(&[
                b'\\',
                b'u',
                b'0',
                b'0',
                HEX[usize::from(byte >> 4)],
                HEX[usize::from(byte & 15)],
            ]),
        }
    }
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request<'a>(path: &'a [u8], fields: &'a [u8]) -> Entry<'a> {
        Entry {
            peer: Peer::Address([10, 0, 0, 1].into()),
            request: Some(Request { method: b"GET", path, query: Some(b"a=b"), is_1_1: true, fields }),
            status: 200,
            bytes: 5,
            microseconds: 42,
            id: Some(b"id"),
        }
    }

    fn made(write: fn(&mut Vec<u8>, &Entry), entry: &Entry) -> Vec<u8> {
        let mut out = Vec::new();
        write(&mut out, entry);
        out
    }

    #[test]
    fn a_combined_line() {
        let line = String::from_utf8(made(combined, &request(b"/", b"User-Agent: curl\r\n"))).expect("UTF-8");
        assert!(line.starts_with("10.0.0.1 - - ["), "{line}");
        assert!(line.ends_with(" +0000] \"GET /?a=b HTTP/1.1\" 200 5 \"-\" \"curl\"\n"), "{line}");
    }

    #[test]
    fn a_line_of_json() {
        let line =
            String::from_utf8(made(json, &request("/caf\u{e9}".as_bytes(), b"Referer: \"x\\\r\n"))).expect("UTF-8");
        assert!(line.starts_with("{\"time\":\"2"), "{line}");
        assert!(
            line.ends_with(
                "Z\",\"peer\":\"10.0.0.1\",\"method\":\"GET\",\"path\":\"/caf\u{e9}\",\"query\":\"a=b\",\
                 \"protocol\":\"HTTP/1.1\",\
                 \"status\":200,\"bytes\":5,\"duration_us\":42,\"request_id\":\"id\",\"referer\":\"\\\"x\\\\\"}\n"
            ),
            "{line}"
        );
    }

    #[test]
    fn no_byte_ends_a_line() {
        let all: Vec<u8> = (0..=255).collect();
        for write in [combined, json] {
            let line = made(write, &request(&all, b""));
            assert_eq!(line.iter().position(|&byte| byte < b' '), Some(line.len() - 1));
            assert!(line.is_ascii());
        }
    }

    #[test]
    fn what_was_no_request() {
        let entry = Entry { peer: Peer::Unknown, request: None, status: 400, bytes: 0, microseconds: 0, id: None };
        assert!(made(combined, &entry).ends_with(b" +0000] \"-\" 400 0 \"-\" \"-\"\n"));
        assert!(made(json, &entry).ends_with(b"Z\",\"status\":400,\"bytes\":0,\"duration_us\":0}\n"));
    }
}
