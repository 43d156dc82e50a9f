//! The head of the response before a connection changes its protocol.

use super::measurement::Fault;

/// The position of the status code, after the version and a space.
const STATUS: std::ops::Range<usize> = 9..12;

const END: &[u8; 4] = b"\r\n\r\n";

/// The received part of a head.
#[derive(Debug, Default)]
pub struct Greeting {
    line: [u8; STATUS.end],
    length: usize,
    /// How many bytes of the final empty line have arrived.
    ended: usize,
}

impl Greeting {
    /// Takes received bytes. Once the head is complete and has this status, returns the bytes
    /// after it.
    pub fn read<'a>(
        &mut self,
        mut bytes: &'a [u8],
        status: &[u8; 3],
    ) -> Result<Option<&'a [u8]>, Fault> {
        while self.ended < END.len() {
            let Some((&byte, rest)) = bytes.split_first() else {
                return Ok(None);
            };
            bytes = rest;
            if self.length < self.line.len() {
                self.line[self.length] = byte;
                self.length += 1;
            }
            self.ended = match self.ended {
                ended if byte == END[ended] => ended + 1,
                _ => usize::from(byte == END[0]),
            };
        }
        if &self.line[STATUS] == status {
            Ok(Some(bytes))
        } else {
            Err(Fault::Status)
        }
    }

    /// Whether the head is complete.
    pub fn is_whole(&self) -> bool {
        self.ended == END.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_ends_however_it_is_cut() {
        let stream = b"HTTP/1.1 101 Yes\r\nA: b\r\r\n\r\n\r\nrest";
        for piece in 1..=stream.len() {
            let mut greeting = Greeting::default();
            let mut rest = Vec::new();
            for bytes in stream.chunks(piece) {
                match greeting.read(bytes, b"101") {
                    Ok(after) => rest.extend_from_slice(after.unwrap_or_default()),
                    Err(fault) => panic!("{fault:?}"),
                }
            }
            assert!(greeting.is_whole());
            assert_eq!(rest, b"\r\nrest");
        }
    }

    #[test]
    fn another_status_is_refused() {
        let refused = b"HTTP/1.1 404 No\r\n\r\n";
        assert_eq!(
            Greeting::default().read(refused, b"101"),
            Err(Fault::Status)
        );
        assert_eq!(
            Greeting::default().read(b"\r\n\r\n", b"200"),
            Err(Fault::Status)
        );
    }
}
