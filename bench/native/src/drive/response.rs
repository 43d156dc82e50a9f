//! Parses HTTP responses from a stream that may be cut anywhere.

use std::mem::MaybeUninit;

use httparse::{ParserConfig, Response, Status};

use super::measurement::Fault;

/// Most bytes of a response head.
const LONGEST_HEAD: usize = 16 * 1024;

const MOST_HEADERS: usize = 64;

/// Reads a sequence of responses that have a Content-Length.
#[derive(Debug, Default)]
pub struct ResponseReader {
    /// The received part of a head.
    head: Vec<u8>,
    /// The status of the response whose body is being read, and the bytes still to come.
    body: Option<(u16, usize)>,
}

/// The result of parsing some bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The response is incomplete.
    Incomplete,
    /// The response is complete.
    Complete {
        /// Its status code.
        status: u16,
        /// Given bytes that follow the response.
        rest: usize,
    },
}

/// The bytes cannot be parsed: no HTTP/1 response, a head that is too long, or no length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadResponse;

impl From<BadResponse> for Fault {
    fn from(_: BadResponse) -> Self {
        Self::BadResponse
    }
}

/// The head of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Head {
    status: u16,
    head_length: usize,
    body_length: usize,
}

impl ResponseReader {
    /// Takes received bytes. After a complete response, pass its `rest` again.
    #[inline]
    pub fn read(&mut self, mut bytes: &[u8]) -> Result<Progress, BadResponse> {
        loop {
            if let Some((status, missing)) = self.body {
                if bytes.len() < missing {
                    self.body = Some((status, missing - bytes.len()));
                    return Ok(Progress::Incomplete);
                }
                self.body = None;
                let rest = bytes.len() - missing;
                return Ok(Progress::Complete { status, rest });
            }
            let Some((head, used)) = self.read_head(bytes)? else {
                return Ok(Progress::Incomplete);
            };
            bytes = &bytes[used..];
            // 1xx: the final response follows.
            if head.status >= 200 {
                self.body = Some((head.status, head.body_length));
            }
        }
    }

    /// A complete head, and how many of `bytes` belong to it.
    #[inline]
    fn read_head(&mut self, bytes: &[u8]) -> Result<Option<(Head, usize)>, BadResponse> {
        if self.head.is_empty() {
            if let Some(head) = parse(bytes)? {
                return Ok(Some((head, head.head_length)));
            }
            self.keep(bytes)?;
            return Ok(None);
        }
        let before = self.head.len();
        self.keep(bytes)?;
        let Some(head) = parse(&self.head)? else {
            return Ok(None);
        };
        self.head.clear();
        Ok(Some((head, head.head_length - before)))
    }

    fn keep(&mut self, bytes: &[u8]) -> Result<(), BadResponse> {
        // The bytes after a head may be long, so only those that fit are searched; a head that is
        // longer is an error.
        let room = LONGEST_HEAD - self.head.len();
        if room == 0 {
            return Err(BadResponse);
        }
        self.head.extend_from_slice(&bytes[..bytes.len().min(room)]);
        Ok(())
    }
}

#[inline]
fn parse(bytes: &[u8]) -> Result<Option<Head>, BadResponse> {
    let mut headers = [const { MaybeUninit::uninit() }; MOST_HEADERS];
    let mut response = Response::new(&mut []);
    let parsed = ParserConfig::default().parse_response_with_uninit_headers(
        &mut response,
        bytes,
        &mut headers,
    );
    let head_length = match parsed {
        Ok(Status::Complete(length)) => length,
        Ok(Status::Partial) => return Ok(None),
        Err(_) => return Err(BadResponse),
    };
    let status = response.code.ok_or(BadResponse)?;
    let has_no_body = status < 200 || status == 204 || status == 304;
    let body_length = if has_no_body {
        0
    } else {
        content_length(response.headers).ok_or(BadResponse)?
    };
    Ok(Some(Head {
        status,
        head_length,
        body_length,
    }))
}

fn content_length(headers: &[httparse::Header<'_>]) -> Option<usize> {
    let header = headers
        .iter()
        .find(|header| header.name.eq_ignore_ascii_case("content-length"))?;
    std::str::from_utf8(header.value).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HELLO: &[u8] =
        b"HTTP/1.1 200 OK\r\nContent-Length: 12\r\nConnection: Keep-Alive\r\n\r\nhello world!";

    fn statuses(pieces: &[&[u8]]) -> Result<Vec<u16>, BadResponse> {
        let mut reader = ResponseReader::default();
        let mut statuses = Vec::new();
        for piece in pieces {
            let mut bytes = *piece;
            while let Progress::Complete { status, rest } = reader.read(bytes)? {
                statuses.push(status);
                bytes = &bytes[bytes.len() - rest..];
                if bytes.is_empty() {
                    break;
                }
            }
        }
        Ok(statuses)
    }

    #[test]
    fn a_response_is_read_however_it_is_cut() {
        let two = [HELLO, HELLO].concat();
        for first in 0..two.len() {
            for second in first..two.len() {
                let pieces = [&two[..first], &two[first..second], &two[second..]];
                assert_eq!(statuses(&pieces), Ok(vec![200, 200]), "{first} {second}");
            }
        }
    }

    #[test]
    fn names_of_headers_have_no_case_and_bodies_may_be_empty() {
        assert_eq!(
            statuses(&[b"HTTP/1.1 404 Not Found\r\ncontent-LENGTH:  0 \r\n\r\n"]),
            Ok(vec![404])
        );
        assert_eq!(
            statuses(&[b"HTTP/1.1 204 No Content\r\n\r\n", HELLO]),
            Ok(vec![204, 200])
        );
        let continued = [b"HTTP/1.1 100 Continue\r\n\r\n", HELLO].concat();
        assert_eq!(statuses(&[&continued]), Ok(vec![200]));
    }

    #[test]
    fn what_cannot_be_followed_is_refused() {
        for wrong in [
            &b"SSH-2.0-OpenSSH\r\n"[..],
            b"HTTP/1.1 200 OK\r\n\r\nno length",
            b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        ] {
            assert_eq!(statuses(&[wrong]), Err(BadResponse));
        }
        let endless = b"HTTP/1.1 200 OK\r\nX: ".to_vec();
        let filler = vec![b'x'; LONGEST_HEAD];
        assert_eq!(statuses(&[&endless, &filler, &filler]), Err(BadResponse));
    }

    #[test]
    fn a_body_may_be_longer_than_a_head() {
        let head = b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n";
        let body = vec![b'x'; 100_000];
        let whole = [&head[..], &body].concat();
        assert_eq!(statuses(&[&whole]), Ok(vec![200]));
        assert_eq!(statuses(&[&whole[..10], &whole[10..]]), Ok(vec![200]));
    }
}
