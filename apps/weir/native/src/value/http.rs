//! Parses a line of HTTP like `erlang:decode_packet/3`. Its rules, including the lax ones, are
//! those of OTP's `packet_parser.c`, because programs match on the results.

/// A parsed line.
#[derive(Debug, PartialEq, Eq)]
pub enum Line<'a> {
    Request { method: Name<'a>, uri: Uri<'a>, version: (i32, i32) },
    Response { version: (i32, i32), status: i32, reason: &'a [u8] },
    Field { name: Name<'a>, original: &'a [u8], value: &'a [u8] },
    EndOfHeaders,
}

/// A method or a field name.
#[derive(Debug, PartialEq, Eq)]
pub enum Name<'a> {
    /// One of [`METHODS`] or [`FIELDS`], by its index.
    Known(usize),
    /// Any other name; that of a field in its usual capitalisation.
    Other(std::borrow::Cow<'a, [u8]>),
}

/// The target of a request.
#[derive(Debug, PartialEq, Eq)]
pub enum Uri<'a> {
    Star,
    Path(&'a [u8]),
    Absolute { secure: bool, host: &'a [u8], port: Option<i32>, path: &'a [u8] },
    Scheme(&'a [u8], &'a [u8]),
    Other(&'a [u8]),
}

/// Methods that become atoms.
pub const METHODS: [&str; 7] = ["OPTIONS", "GET", "HEAD", "POST", "PUT", "DELETE", "TRACE"];

/// Header fields that become atoms. The `Number` in `{http_header, Number, _, _, _}` is the index
/// here plus 1.
pub const FIELDS: [&str; 52] = [
    "Cache-Control",
    "Connection",
    "Date",
    "Pragma",
    "Transfer-Encoding",
    "Upgrade",
    "Via",
    "Accept",
    "Accept-Charset",
    "Accept-Encoding",
    "Accept-Language",
    "Authorization",
    "From",
    "Host",
    "If-Modified-Since",
    "If-Match",
    "If-None-Match",
    "If-Range",
    "If-Unmodified-Since",
    "Max-Forwards",
    "Proxy-Authorization",
    "Range",
    "Referer",
    "User-Agent",
    "Age",
    "Location",
    "Proxy-Authenticate",
    "Public",
    "Retry-After",
    "Server",
    "Vary",
    "Warning",
    "Www-Authenticate",
    "Allow",
    "Content-Base",
    "Content-Encoding",
    "Content-Language",
    "Content-Length",
    "Content-Location",
    "Content-Md5",
    "Content-Range",
    "Content-Type",
    "Etag",
    "Expires",
    "Last-Modified",
    "Accept-Ranges",
    "Set-Cookie",
    "Set-Cookie2",
    "X-Forwarded-For",
    "Cookie",
    "Keep-Alive",
    "Proxy-Connection",
];

/// Longer names keep their capitalisation.
const LONGEST_NAME: usize = 50;

/// Parses a whole line with its end. `in_headers` says whether it is a header field, and is
/// updated for the next line. `None` if it is not HTTP (`http_error`).
pub fn parse<'a>(line: &'a [u8], in_headers: &mut bool) -> Option<Line<'a>> {
    let line = match line {
        [rest @ .., b'\r', _] => rest,
        [rest @ .., b'\n'] => rest,
        _ => line,
    };
    if *in_headers {
        if line.is_empty() {
            *in_headers = false;
            return Some(Line::EndOfHeaders);
        }
        return field(line);
    }
    let first = match line.strip_prefix(b"HTTP/") {
        Some(rest) => response(rest),
        None => request(line),
    };
    *in_headers = first.is_some();
    first
}

fn response(rest: &[u8]) -> Option<Line<'_>> {
    let (version, rest) = version(rest)?;
    let (blanks, rest) = split(rest, is_blank);
    if blanks.is_empty() {
        return None;
    }
    let (status, rest) = split(rest, |byte| byte.is_ascii_digit());
    let (blanks, reason) = split(rest, is_blank);
    if blanks.is_empty() && !reason.is_empty() {
        return None;
    }
    Some(Line::Response { version, status: number(status), reason })
}

fn request(line: &[u8]) -> Option<Line<'_>> {
    let (method, rest) = split(line, is_token);
    if method.is_empty() || !rest.first().is_some_and(|&byte| is_blank(byte)) {
        return None;
    }
    let (_, rest) = split(rest, is_blank);
    let (uri, rest) = split(rest, |byte| !is_blank(byte));
    if uri.is_empty() {
        return None;
    }
    let (_, rest) = split(rest, is_blank);
    let version = match rest {
        // HTTP/0.9 requests have no version.
        [] => (0, 9),
        _ if rest.len() < b"HTTP/1.1".len() => return None,
        _ => version(rest.strip_prefix(b"HTTP/")?)?.0,
    };
    let method = match METHODS.iter().position(|known| known.as_bytes() == method) {
        Some(known) => Name::Known(known),
        None => Name::Other(method.into()),
    };
    Some(Line::Request { method, uri: target(uri), version })
}

fn field(line: &[u8]) -> Option<Line<'_>> {
    let (original, rest) = split(line, is_token);
    let rest = rest.strip_prefix(b":")?;
    let (_, value) = split(rest, is_blank);
    let name = if original.len() <= LONGEST_NAME {
        let name = capitalised(original);
        match FIELDS.iter().position(|known| known.as_bytes() == name) {
            Some(known) => Name::Known(known),
            None => Name::Other(name.into()),
        }
    } else {
        Name::Other(original.into())
    };
    Some(Line::Field { name, original, value })
}

/// Capitalises a name: `content-TYPE` becomes `Content-Type`.
fn capitalised(name: &[u8]) -> Vec<u8> {
    let mut first = true;
    let capital = |&byte: &u8| {
        if std::mem::take(&mut first) {
            return byte.to_ascii_uppercase();
        }
        first = byte == b'-';
        byte.to_ascii_lowercase()
    };
    name.iter().map(capital).collect()
}

fn target(uri: &[u8]) -> Uri<'_> {
    let strip = |scheme: &[u8]| {
        let (start, rest) = uri.split_at_checked(scheme.len())?;
        start.eq_ignore_ascii_case(scheme).then_some(rest)
    };
    if uri == b"*" {
        Uri::Star
    } else if uri.len() <= 1 || uri[0] == b'/' {
        Uri::Path(uri)
    } else if let Some(rest) = strip(b"http://") {
        absolute(false, rest)
    } else if let Some(rest) = strip(b"https://") {
        absolute(true, rest)
    } else {
        match uri.iter().position(|&byte| byte == b':') {
            Some(at) => Uri::Scheme(&uri[..at], &uri[at + 1..]),
            None => Uri::Other(uri),
        }
    }
}

fn absolute(secure: bool, rest: &[u8]) -> Uri<'_> {
    let (authority, path) = match rest.iter().position(|&byte| byte == b'/') {
        Some(at) => rest.split_at(at),
        None => (rest, &b"/"[..]),
    };
    let (host, port) = match authority.iter().position(|&byte| byte == b':') {
        Some(at) => {
            let (digits, rest) = split(&authority[at + 1..], |byte| byte.is_ascii_digit());
            let port = number(digits);
            (&authority[..at], (rest.is_empty() && port != 0).then_some(port))
        }
        None => (authority, None),
    };
    Uri::Absolute { secure, host, port, path }
}

/// Parses `1.1`. Returns the rest, too.
fn version(bytes: &[u8]) -> Option<((i32, i32), &[u8])> {
    let (major, rest) = split(bytes, |byte| byte.is_ascii_digit());
    let (minor, rest) = split(rest.strip_prefix(b".")?, |byte| byte.is_ascii_digit());
    (!major.is_empty() && !minor.is_empty()).then(|| ((number(major), number(minor)), rest))
}

/// Parses a number of any length; it wraps around on overflow, as in C.
fn number(digits: &[u8]) -> i32 {
    digits.iter().fold(0, |sum: i32, digit| sum.wrapping_mul(10).wrapping_add(i32::from(digit - b'0')))
}

fn split(bytes: &[u8], belongs: impl Fn(u8) -> bool) -> (&[u8], &[u8]) {
    bytes.split_at(bytes.iter().position(|&byte| !belongs(byte)).unwrap_or(bytes.len()))
}

fn is_blank(byte: u8) -> bool {
    byte == b' ' || byte == b'\t'
}

/// A character of a method or a name (RFC 9110, 5.6.2); also DEL, which OTP's parser accepts.
fn is_token(byte: u8) -> bool {
    matches!(byte, 33..128) && !b"()<>@,;:\\\"/[]?={}".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first(line: &[u8]) -> Option<Line<'_>> {
        parse(line, &mut false)
    }

    #[test]
    fn a_message_from_its_first_line_to_its_last() {
        let mut in_headers = false;
        let line = parse(b"GET /a?b HTTP/1.1\r\n", &mut in_headers);
        assert_eq!(line, Some(Line::Request { method: Name::Known(1), uri: Uri::Path(b"/a?b"), version: (1, 1) }));
        let line = parse(b"content-TYPE: text/plain\r\n", &mut in_headers);
        let original = b"content-TYPE";
        assert_eq!(line, Some(Line::Field { name: Name::Known(41), original, value: b"text/plain" }));
        let line = parse(b"x-own:\t1\n", &mut in_headers);
        let name = Name::Other(b"X-Own"[..].into());
        assert_eq!(line, Some(Line::Field { name, original: b"x-own", value: b"1" }));
        assert_eq!(parse(b"no field\r\n", &mut in_headers), None);
        assert_eq!(parse(b"\r\n", &mut in_headers), Some(Line::EndOfHeaders));
        assert!(!in_headers);
    }

    #[test]
    fn responses_may_lack_a_reason() {
        let response = |reason| Some(Line::Response { version: (1, 0), status: 204, reason });
        assert_eq!(first(b"HTTP/1.0 204\r\n"), response(b""));
        assert_eq!(first(b"HTTP/1.0 204 No  Content\r\n"), response(b"No  Content"));
        assert_eq!(first(b"HTTP/1.0 204No\r\n"), None);
        assert_eq!(first(b"HTTP/1.0\r\n"), None);
    }

    #[test]
    fn targets() {
        let uri = |line| match first(line) {
            Some(Line::Request { uri, .. }) => uri,
            other => panic!("{other:?}"),
        };
        assert_eq!(uri(b"OPTIONS * HTTP/1.1\r\n"), Uri::Star);
        let absolute = |secure, host, port, path| Uri::Absolute { secure, host, port, path };
        assert_eq!(uri(b"GET HTTP://h:80/p HTTP/1.1\n"), absolute(false, b"h", Some(80), b"/p"));
        assert_eq!(uri(b"GET https://h HTTP/1.1\n"), absolute(true, b"h", None, b"/"));
        assert_eq!(uri(b"GET http://h:8x/ HTTP/1.1\n"), absolute(false, b"h", None, b"/"));
        assert_eq!(uri(b"CONNECT h:443 HTTP/1.1\n"), Uri::Scheme(b"h", b"443"));
        assert_eq!(uri(b"GET name\n"), Uri::Other(b"name"));
    }

    #[test]
    fn what_is_no_http() {
        for line in [&b"GET\r\n"[..], b" GET / HTTP/1.1\r\n", b"GET / HTTP/1\r\n", b"GET / FTP/1.1x\r\n", b"\r\n", b""]
        {
            assert_eq!(first(line), None, "{line:?}");
        }
    }
}
