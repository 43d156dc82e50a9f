//! The target of a request: path and query, or `*` (RFC 9112, 3.2).

use std::ops::Range;

use crate::refusal::Refusal;

/// A target, as ranges of the bytes parsed.
#[derive(Debug, PartialEq, Eq)]
pub struct Target {
    /// `None` if an absolute target has no path, which means `/`.
    pub path: Option<Range<usize>>,
    /// The part after the question mark.
    pub query: Option<Range<usize>>,
    /// The authority of an absolute target.
    pub authority: Option<Range<usize>>,
    /// The path can be compared as it is: nothing is encoded, no segment before the last is empty,
    /// none begins with a dot.
    pub is_plain: bool,
}

/// Parses a target. `*` is allowed for OPTIONS only.
pub fn parse(target: &[u8], is_options: bool) -> Result<Target, Refusal> {
    match target.first() {
        Some(b'/') => local(target, 0, None),
        Some(b'*') if target.len() == 1 && is_options => {
            Ok(Target { path: Some(0..1), query: None, authority: None, is_plain: true })
        }
        Some(_) => absolute(target),
        None => Err(Refusal::Target),
    }
}

fn absolute(target: &[u8]) -> Result<Target, Refusal> {
    let scheme = [&b"http://"[..], b"https://"]
        .into_iter()
        .find(|scheme| target.len() > scheme.len() && target[..scheme.len()].eq_ignore_ascii_case(scheme))
        .ok_or(Refusal::Target)?;
    let begin = scheme.len();
    let end =
        target[begin..].iter().position(|&byte| byte == b'/' || byte == b'?').map_or(target.len(), |at| begin + at);
    local(target, end, Some(begin..end))
}

/// Parses path and query from `begin` on.
fn local(target: &[u8], begin: usize, authority: Option<Range<usize>>) -> Result<Target, Refusal> {
    let mut is_plain = true;
    let mut at = begin;
    while at < target.len() && target[at] != b'?' {
        match target[at] {
            b'/' if matches!(target.get(at + 1), Some(b'/' | b'.')) => is_plain = false,
            b'%' => {
                encoded(target, at)?;
                is_plain = false;
            }
            byte if !is_allowed(byte) => return Err(Refusal::Target),
            _ => (),
        }
        at += 1;
    }
    let path = if at > begin { Some(begin..at) } else { None };
    let query = if at < target.len() { Some(at + 1..target.len()) } else { None };
    match &query {
        Some(query) if !target[query.clone()].iter().all(|&byte| is_allowed(byte)) => Err(Refusal::Target),
        _ => Ok(Target { path, query, authority, is_plain }),
    }
}

/// Characters of RFC 3986, and those that browsers do not encode in a query: `[ ] ^ { | }` and the
/// backquote. A backslash is refused because some programs treat it as a slash, `#` because
/// fragments are never sent.
fn is_allowed(byte: u8) -> bool {
    matches!(byte, b'!'..=b'~') && !matches!(byte, b'"' | b'#' | b'<' | b'>' | b'\\')
}

/// A percent sign must encode a byte, and not NUL, LF or CR, which could end a string or a line in
/// programs behind us.
fn encoded(target: &[u8], at: usize) -> Result<(), Refusal> {
    let digit = |offset| target.get(at + offset).and_then(|&byte| (byte as char).to_digit(16));
    match (digit(1), digit(2)) {
        (Some(0), Some(0 | 10 | 13)) => Err(Refusal::Target),
        (Some(_), Some(_)) => Ok(()),
        _ => Err(Refusal::Target),
    }
}

/// Whether bytes are a host with an optional port, and nothing else.
pub fn is_authority(host: &[u8]) -> bool {
    let (name, port) = match host.first() {
        Some(b'[') => match host.iter().position(|&byte| byte == b']') {
            Some(end) => (&host[..end + 1], &host[end + 1..]),
            None => return false,
        },
        _ => {
            let end = host.iter().position(|&byte| byte == b':').unwrap_or(host.len());
            (&host[..end], &host[end..])
        }
    };
    let is_port = match port {
        [] => true,
        [b':', digits @ ..] => digits.len() <= 5 && digits.iter().all(u8::is_ascii_digit),
        _ => false,
    };
    let is_name = match name {
        [] => false,
        [b'[', inner @ .., b']'] => {
            !inner.is_empty() && inner.iter().all(|&byte| byte.is_ascii_alphanumeric() || b":.".contains(&byte))
        }
        // The grammar allows a comma, but it looks like a list of two hosts.
        _ => name.iter().all(|&byte| byte.is_ascii_alphanumeric() || b"-._~%!$&'()*+;=".contains(&byte)),
    };
    is_name && is_port
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path_and_query(target: &str) -> Option<(&str, Option<&str>)> {
        let parsed = parse(target.as_bytes(), false).ok()?;
        Some((parsed.path.map_or("/", |range| &target[range]), parsed.query.map(|range| &target[range])))
    }

    #[test]
    fn forms() {
        assert_eq!(path_and_query("/"), Some(("/", None)));
        assert_eq!(path_and_query("/a?b=c?d"), Some(("/a", Some("b=c?d"))));
        assert_eq!(path_and_query("/?"), Some(("/", Some(""))));
        assert_eq!(path_and_query("http://h"), Some(("/", None)));
        assert_eq!(path_and_query("HTTP://h:80/p?q"), Some(("/p", Some("q"))));
        assert_eq!(path_and_query("https://h?q"), Some(("/", Some("q"))));
        for bad in ["", "*", "a", "ftp://h/", "http://", "h:80"] {
            assert_eq!(parse(bad.as_bytes(), false), Err(Refusal::Target), "{bad}");
        }
        assert!(parse(b"*", true).is_ok());
        assert!(parse(b"*a", true).is_err());
    }

    #[test]
    fn characters() {
        for bad in ["/a#b", "/a\\b", "/a\"", "/\u{e9}", "/%", "/%4", "/%zz", "/%00", "/%0d", "/%0A", "/a?\\"] {
            assert_eq!(parse(bad.as_bytes(), false), Err(Refusal::Target), "{bad}");
        }
        assert!(parse(b"/a?b={c}|d&e=[f]", false).is_ok());
    }

    #[test]
    fn plain() {
        for (target, is_plain) in [
            ("/a/b.c", true),
            ("/", true),
            ("/a/", true),
            ("/a//b", false),
            ("/.", false),
            ("/a/../b", false),
            ("/%41", false),
        ] {
            assert_eq!(parse(target.as_bytes(), false).map(|parsed| parsed.is_plain), Ok(is_plain), "{target}");
        }
    }

    #[test]
    fn authorities() {
        for good in ["a", "a.b:80", "[::1]", "[::1]:8080", "127.0.0.1", "a:"] {
            assert!(is_authority(good.as_bytes()), "{good}");
        }
        for bad in ["", ":80", "a/b", "u@a", "a,b", "a b", "[::1", "[]", "a:b", "a:123456", "a?b", "[::1]x"] {
            assert!(!is_authority(bad.as_bytes()), "{bad}");
        }
    }
}
