//! Header fields: lookup in a head that was checked, and values that are lists.

use memchr::memchr;

/// Characters of a token (RFC 9110, 5.6.2).
static TOKEN: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        table[byte] = (byte as u8).is_ascii_alphanumeric();
        byte += 1;
    }
    let others = b"!#$%&'*+-.^_`|~";
    let mut at = 0;
    while at < others.len() {
        table[others[at] as usize] = true;
        at += 1;
    }
    table
};

/// Whether a byte is allowed in a name.
pub fn is_token(byte: u8) -> bool {
    TOKEN[usize::from(byte)]
}

/// Whether a byte is allowed in a value: visible characters, blanks, and non-ASCII bytes (RFC
/// 9110, 5.5).
pub fn is_value(byte: u8) -> bool {
    byte >= b' ' && byte != 0x7f || byte == b'\t'
}

/// Removes the optional whitespace around a value (RFC 9110, 5.6.3).
pub fn trim(value: &[u8]) -> &[u8] {
    let begin = value.iter().position(|&byte| !is_whitespace(byte)).unwrap_or(value.len());
    let end = value.iter().rposition(|&byte| !is_whitespace(byte)).map_or(begin, |last| last + 1);
    &value[begin..end]
}

fn is_whitespace(byte: u8) -> bool {
    byte == b' ' || byte == b'\t'
}

/// Whether a comma-separated list, such as the value of Connection, contains a token.
pub fn has_token(value: &[u8], token: &[u8]) -> bool {
    value.split(|&byte| byte == b',').any(|element| trim(element).eq_ignore_ascii_case(token))
}

/// Iterates over the fields of a head that the parser has accepted: lines `name: value` that end
/// in CRLF. Iteration stops at other bytes.
pub fn iter(head: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    let mut rest = head;
    std::iter::from_fn(move || {
        let end = memchr(b'\n', rest)?;
        let line = &rest[..end];
        rest = &rest[end + 1..];
        let colon = memchr(b':', line)?;
        let value = line[colon + 1..].strip_suffix(b"\r").unwrap_or(&line[colon + 1..]);
        Some((&line[..colon], trim(value)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_have_tokens() {
        assert!(has_token(b"close", b"close"));
        assert!(has_token(b"foo ,\tClose", b"close"));
        assert!(!has_token(b"closed", b"close"));
        assert!(!has_token(b"", b"close"));
    }

    #[test]
    fn fields_in_their_order() {
        let head = b"Host: a\r\nX:\t b c \r\nEmpty:\r\n";
        let all: Vec<_> = iter(head).collect();
        assert_eq!(all, [(&b"Host"[..], &b"a"[..]), (b"X", b"b c"), (b"Empty", b"")]);
    }

    #[test]
    fn any_bytes_give_fields_or_none() {
        assert_eq!(iter(b"no colon\r\n").count(), 0);
        assert_eq!(iter(b"a: never ends").count(), 0);
        assert_eq!(iter(b"").count(), 0);
    }
}
