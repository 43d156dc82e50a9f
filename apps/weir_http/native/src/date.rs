//! The date of responses, formatted once per second and thread.

use std::cell::Cell;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A date such as `Sun, 06 Nov 1994 08:49:37 GMT`.
pub type Text = [u8; 29];

thread_local! {
    static LAST: Cell<(u64, Text)> = const { Cell::new((u64::MAX, [b' '; 29])) };
}

/// Returns the current date.
pub fn now() -> Text {
    at(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()))
}

fn at(second: u64) -> Text {
    let (known, text) = LAST.get();
    if known == second {
        return text;
    }
    let text = format(second);
    LAST.set((second, text));
    text
}

/// Formats seconds since 1970.
pub fn format(second: u64) -> Text {
    // The end of the year 9999: httpdate panics for later dates.
    let date = httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(second.min(253_402_300_799)));
    let mut text = [b' '; 29];
    text.copy_from_slice(date.as_bytes());
    text
}

/// Parses a date in one of the three forms of HTTP (RFC 9110, 5.6.7). Returns seconds since 1970.
pub fn parse(text: &[u8]) -> Option<u64> {
    let time = httpdate::parse_http_date(std::str::from_utf8(text).ok()?).ok()?;
    time.duration_since(UNIX_EPOCH).ok().map(|since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates() {
        assert_eq!(&at(784_111_777), b"Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(&at(784_111_777), b"Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(&at(784_111_778), b"Sun, 06 Nov 1994 08:49:38 GMT");
        assert_eq!(parse(b"Sun, 06 Nov 1994 08:49:37 GMT"), Some(784_111_777));
        assert_eq!(parse(b"Sunday, 06-Nov-94 08:49:37 GMT"), Some(784_111_777));
        assert_eq!(parse(b"Sun Nov  6 08:49:37 1994"), Some(784_111_777));
        assert_eq!(parse(b"yesterday"), None);
        assert_eq!(parse(b"\xff"), None);
        assert_eq!(&at(u64::MAX), b"Fri, 31 Dec 9999 23:59:59 GMT");
    }
}
