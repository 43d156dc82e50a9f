//! The key of a handshake (RFC 6455, 4.2.2).

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sha1_smol::Sha1;

const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// Returns the Sec-WebSocket-Accept value for a key; `None` if the key is not 16 bytes in base64.
pub fn accept(key: &[u8]) -> Option<String> {
    // 16 bytes are 24 characters: other lengths are refused without decoding.
    let is_key = key.len() == 24 && STANDARD.decode(key).is_ok_and(|bytes| bytes.len() == 16);
    is_key.then(|| {
        let mut hash = Sha1::from(key);
        hash.update(GUID);
        STANDARD.encode(hash.digest().bytes())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys() {
        // The example in the RFC.
        assert_eq!(accept(b"dGhlIHNhbXBsZSBub25jZQ==").as_deref(), Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
        for bad in [
            &b""[..],
            b"dGhlIHNhbXBsZSBub25jZQ",
            b"dGhlIHNhbXBsZSBub25jZTEy",
            b"dGhlIHNhbXBsZSBub25j*Q==",
            b"dGhlIHNhbXBsZSBub25jZQ== ",
        ] {
            assert_eq!(accept(bad), None, "{bad:?}");
        }
    }
}
