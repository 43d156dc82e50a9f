//! The meaning of the fields of a request: its length, its host, and what happens to the
//! connection.
//!
//! A request that two servers could read differently is refused, since one of them may be in front
//! of us (RFC 9112, 11.2).

use httparse::Header;

use crate::fields::{has_token, trim};
use crate::refusal::Refusal;
use crate::target;

/// The connection stays open after the response.
pub const KEEP_ALIVE: u32 = 1;
/// HTTP/1.1, not 1.0.
pub const VERSION_1_1: u32 = 2;
/// The client waits for `100 Continue` before it sends the body.
pub const EXPECT_CONTINUE: u32 = 4;
/// The framing of the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    Length(u64),
    Chunked,
}

/// The fields that determine length, host and connection.
#[derive(Default)]
pub struct Meaning<'a> {
    host: Option<&'a [u8]>,
    length: Option<u64>,
    is_chunked: bool,
    closes: bool,
    keeps_alive: bool,
    expects_continue: bool,
}

impl<'a> Meaning<'a> {
    /// Evaluates fields.
    pub fn of(fields: &[Header<'a>]) -> Result<Self, Refusal> {
        let mut meaning = Meaning::default();
        for field in fields {
            let name = field.name.as_bytes();
            match name.len() {
                4 if name.eq_ignore_ascii_case(b"host") => meaning.host(field.value)?,
                6 if name.eq_ignore_ascii_case(b"expect") => meaning.expect(field.value)?,
                10 if name.eq_ignore_ascii_case(b"connection") => meaning.connection(field.value),
                14 if is_spelled(name, b"content-length")? => meaning.content_length(field.value)?,
                17 if is_spelled(name, b"transfer-encoding")? => meaning.transfer_encoding(field.value)?,
                _ => (),
            }
        }
        match meaning.is_chunked && meaning.length.is_some() {
            true => Err(Refusal::TransferEncoding),
            false => Ok(meaning),
        }
    }

    fn host(&mut self, value: &'a [u8]) -> Result<(), Refusal> {
        let value = trim(value);
        if self.host.is_some() || !target::is_authority(value) {
            return Err(Refusal::Host);
        }
        self.host = Some(value);
        Ok(())
    }

    fn expect(&mut self, value: &[u8]) -> Result<(), Refusal> {
        self.expects_continue = trim(value).eq_ignore_ascii_case(b"100-continue");
        if self.expects_continue { Ok(()) } else { Err(Refusal::Expectation) }
    }

    fn connection(&mut self, value: &[u8]) {
        self.closes |= has_token(value, b"close");
        self.keeps_alive |= has_token(value, b"keep-alive");
    }

    /// One number without sign, blank or leading zero. A second field is refused even if it is
    /// equal.
    fn content_length(&mut self, value: &[u8]) -> Result<(), Refusal> {
        let digits = trim(value);
        let is_number = !digits.is_empty()
            && digits.len() <= 18
            && digits.iter().all(u8::is_ascii_digit)
            && (digits.len() == 1 || digits[0] != b'0');
        if self.length.is_some() || !is_number {
            return Err(Refusal::ContentLength);
        }
        self.length = Some(digits.iter().fold(0, |length, &digit| length * 10 + u64::from(digit - b'0')));
        Ok(())
    }

    fn transfer_encoding(&mut self, value: &[u8]) -> Result<(), Refusal> {
        let coding = trim(value);
        if self.is_chunked {
            return Err(Refusal::TransferEncoding);
        }
        if !coding.eq_ignore_ascii_case(b"chunked") {
            // Codings that exist are reported as not implemented; anything else is invalid.
            let known = [&b"gzip"[..], b"x-gzip", b"compress", b"x-compress", b"deflate"];
            return match known.iter().any(|known| has_token(coding, known)) {
                true => Err(Refusal::Coding),
                false => Err(Refusal::TransferEncoding),
            };
        }
        self.is_chunked = true;
        Ok(())
    }

    /// HTTP/1.1 requires Host. With an absolute target, Host must equal its authority.
    pub fn check_host(&self, authority: Option<&[u8]>, is_1_1: bool) -> Result<(), Refusal> {
        let is_right = match (self.host, authority) {
            (None, authority) => !is_1_1 && authority.is_none_or(target::is_authority),
            (Some(_), None) => true,
            (Some(host), Some(authority)) => host.eq_ignore_ascii_case(authority),
        };
        if is_right { Ok(()) } else { Err(Refusal::Host) }
    }

    /// Returns the framing of the body.
    pub fn body(&self, is_1_1: bool) -> Result<Body, Refusal> {
        match self.is_chunked {
            true if !is_1_1 => Err(Refusal::TransferEncoding),
            true => Ok(Body::Chunked),
            false => Ok(Body::Length(self.length.unwrap_or(0))),
        }
    }

    /// Returns the flags above.
    pub fn flags(&self, is_1_1: bool) -> u32 {
        let keeps_alive = !self.closes && (is_1_1 || self.keeps_alive);
        let mut flags = 0;
        if keeps_alive {
            flags |= KEEP_ALIVE;
        }
        if is_1_1 {
            flags |= VERSION_1_1;
            if self.expects_continue {
                flags |= EXPECT_CONTINUE;
            }
        }
        flags
    }
}

/// Refuses trailers about length or host (RFC 9110, 6.5.1). Other servers refuse such requests
/// too.
pub fn check_trailers(trailers: &[Header]) -> Result<(), Refusal> {
    for trailer in trailers {
        let name = trailer.name.as_bytes();
        match name.len() {
            4 if name.eq_ignore_ascii_case(b"host") => return Err(Refusal::Host),
            14 if is_spelled(name, b"content-length")? => return Err(Refusal::ContentLength),
            17 if is_spelled(name, b"transfer-encoding")? => return Err(Refusal::TransferEncoding),
            _ => (),
        }
    }
    Ok(())
}

/// Whether a name of the same length is the known one. Refuses a name with an underscore in place
/// of the hyphen: programs behind us that turn names into variables cannot tell the two apart.
fn is_spelled(name: &[u8], known: &[u8]) -> Result<bool, Refusal> {
    let same = |given: u8, known: u8| given.eq_ignore_ascii_case(&known) || (given == b'_' && known == b'-');
    if !name.iter().zip(known).all(|(&given, &known)| same(given, known)) {
        return Ok(false);
    }
    if name.contains(&b'_') { Err(Refusal::Syntax) } else { Ok(true) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::head::{self, Head, Limits};

    fn parsed(text: &str) -> Result<Option<Head>, Refusal> {
        head::parse(text.as_bytes(), Limits { line: 8192, head: 16384, fields: 100 })
    }

    fn complete(text: &str) -> Head {
        parsed(text).expect("is accepted").expect("is complete")
    }

    fn with(fields: &str) -> Result<Option<Head>, Refusal> {
        parsed(&format!("POST / HTTP/1.1\r\nHost: a\r\n{fields}\r\n\r\n"))
    }

    #[test]
    fn lengths() {
        for bad in ["+5", "-1", "0x5", "5,5", "5, 6", "", "1 2", "5_0", "05", "00", "9999999999999999999", "5;", "a"] {
            assert_eq!(with(&format!("Content-Length: {bad}")), Err(Refusal::ContentLength), "{bad}");
        }
        assert_eq!(with("Content-Length: 5\r\nContent-Length: 5"), Err(Refusal::ContentLength));
        assert_eq!(with("Content_Length: 5"), Err(Refusal::Syntax));
        for good in ["0", "5", " 5 ", "\t5"] {
            assert!(with(&format!("Content-Length:{good}")).is_ok(), "{good}");
        }
    }

    #[test]
    fn codings() {
        for bad in
            ["", "xchunked", "chunked,", ",chunked", "chunked, chunked", "identity", "\"chunked\"", "chunked;a=b"]
        {
            assert_eq!(with(&format!("Transfer-Encoding: {bad}")), Err(Refusal::TransferEncoding), "{bad}");
        }
        for bad in ["gzip", "gzip, chunked", "chunked, gzip"] {
            assert_eq!(with(&format!("Transfer-Encoding: {bad}")), Err(Refusal::Coding), "{bad}");
        }
        for both in
            ["Transfer-Encoding: chunked\r\nContent-Length: 5", "Content-Length: 5\r\nTransfer-Encoding: chunked"]
        {
            assert_eq!(with(both), Err(Refusal::TransferEncoding));
        }
        assert_eq!(with("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked"), Err(Refusal::TransferEncoding));
        assert_eq!(with("Transfer_Encoding: chunked"), Err(Refusal::Syntax));
        assert_eq!(with("transfer-encoding: Chunked").map(|head| head.map(|head| head.body)), Ok(Some(Body::Chunked)));
        assert_eq!(parsed("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"), Err(Refusal::TransferEncoding));
    }

    #[test]
    fn hosts() {
        assert_eq!(with("Host: a"), Err(Refusal::Host));
        for bad in ["GET / HTTP/1.1\r\n\r\n", "GET / HTTP/1.1\r\nHost:\r\n\r\n", "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n"]
        {
            assert_eq!(parsed(bad), Err(Refusal::Host), "{bad}");
        }
        assert_eq!(parsed("GET http://b/ HTTP/1.1\r\nHost: a\r\n\r\n"), Err(Refusal::Host));
        assert_eq!(parsed("GET http://u@a/ HTTP/1.0\r\n\r\n"), Err(Refusal::Host));
    }

    #[test]
    fn connections() {
        let flags = |version: &str, value: &str| {
            complete(&format!("GET / HTTP/{version}\r\nHost: a\r\nConnection: {value}\r\n\r\n")).flags & KEEP_ALIVE
        };
        assert_eq!(flags("1.1", "close"), 0);
        assert_eq!(flags("1.1", "upgrade, Close"), 0);
        assert_eq!(flags("1.1", "keep-alive"), KEEP_ALIVE);
        assert_eq!(flags("1.0", "Keep-Alive"), KEEP_ALIVE);
        assert_eq!(flags("1.0", "keep-alive, close"), 0);
        assert_eq!(flags("1.0", "te"), 0);
    }

    #[test]
    fn expectations() {
        assert_eq!(with("Expect: miracles"), Err(Refusal::Expectation));
        let flags = |version: &str| {
            complete(&format!("POST / HTTP/{version}\r\nHost: a\r\nExpect: 100-Continue\r\n\r\n")).flags
                & EXPECT_CONTINUE
        };
        assert_eq!((flags("1.1"), flags("1.0")), (EXPECT_CONTINUE, 0));
    }
}
