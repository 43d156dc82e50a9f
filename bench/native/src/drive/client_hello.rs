//! A TLS ClientHello of a given length, for proxies that route by server name.

use std::ops::RangeInclusive;

/// The server name in it.
pub const SERVER_NAME: &[u8] = b"bench.example";

/// Length with empty padding.
const LEAST: usize = 80 + SERVER_NAME.len();

/// Allowed lengths. The longest record, with its header, fits into the buffers of many proxies.
pub const SIZES: RangeInclusive<u64> = LEAST as u64..=16 * 1024;

/// How a ClientHello is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Bytes, including the record header.
    pub bytes: usize,
    /// The number of pieces of equal size, each sent separately.
    pub pieces: usize,
}

impl Hello {
    /// The bytes to send: one record. It contains no secret, and no server answers it with TLS.
    pub fn record(&self) -> Vec<u8> {
        let padding = self.bytes.saturating_sub(LEAST);
        let name = [
            &long(SERVER_NAME.len() + 3)[..],
            &[0],
            &long(SERVER_NAME.len()),
            SERVER_NAME,
        ]
        .concat();
        let extensions = [
            extension(0, &name),
            // A signature algorithm, and TLS 1.3.
            extension(13, &[0, 2, 4, 3]),
            extension(43, &[2, 3, 4]),
            extension(21, &vec![0; padding]),
        ]
        .concat();
        let body = [
            &[3, 3][..],
            &[7; 32],
            // No session, one cipher suite, no compression.
            &[0, 0, 2, 0x13, 0x01, 1, 0],
            &long(extensions.len()),
            &extensions,
        ]
        .concat();
        let message = [&[1, 0][..], &long(body.len()), &body].concat();
        [&[22, 3, 1][..], &long(message.len()), &message].concat()
    }

    /// Bytes of a piece.
    pub fn piece(&self) -> usize {
        self.bytes.div_ceil(self.pieces)
    }
}

fn extension(kind: u8, body: &[u8]) -> Vec<u8> {
    [&[0, kind][..], &long(body.len()), body].concat()
}

fn long(length: usize) -> [u8; 2] {
    (length as u16).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::server::Acceptor;

    fn hello(bytes: usize) -> Vec<u8> {
        Hello { bytes, pieces: 1 }.record()
    }

    #[test]
    fn it_is_as_long_as_is_asked_for() {
        for bytes in [LEAST, LEAST + 1, 517, 16_384] {
            assert_eq!(hello(bytes).len(), bytes);
        }
    }

    #[test]
    fn the_pieces_are_all_of_it() {
        let pieces = |bytes, pieces| bytes - (pieces - 1) * Hello { bytes, pieces }.piece();
        assert_eq!(pieces(16_384, 16), 1024);
        assert_eq!(pieces(1000, 3), 332);
    }

    #[test]
    fn another_implementation_reads_the_name_in_it() {
        for bytes in [LEAST, 16_384] {
            let record = hello(bytes);
            let mut acceptor = Acceptor::default();
            let mut rest = &record[..];
            while !rest.is_empty() {
                acceptor.read_tls(&mut rest).unwrap();
            }
            let accepted = acceptor.accept().map_err(|(error, _)| error).unwrap();
            let name = accepted.expect("it is whole");
            assert_eq!(name.client_hello().server_name(), Some("bench.example"));
        }
    }
}
