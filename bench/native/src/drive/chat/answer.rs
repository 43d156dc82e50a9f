//! The answer to a long poll: one message, or several as multipart/mixed.

use httparse::{EMPTY_HEADER, Response, Status};

use super::super::measurement::Fault;

const MOST_HEADERS: usize = 64;

/// A complete answer at the beginning of the received bytes.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    /// Bytes of head and body.
    pub length: usize,
    pub body: std::ops::Range<usize>,
    /// Last-Modified and Etag.
    pub position: Option<(Vec<u8>, Vec<u8>)>,
    boundary: Option<Vec<u8>>,
}

impl Answer {
    /// `None`: the answer is incomplete.
    pub fn read(bytes: &[u8]) -> Result<Option<Self>, Fault> {
        let mut headers = [EMPTY_HEADER; MOST_HEADERS];
        let mut response = Response::new(&mut headers);
        let start = match response.parse(bytes) {
            Ok(Status::Complete(length)) => length,
            Ok(Status::Partial) => return Ok(None),
            Err(_) => return Err(Fault::BadResponse),
        };
        let status = response.code.ok_or(Fault::BadResponse)?;
        let value = |name: &str| {
            let header = response
                .headers
                .iter()
                .find(|header| header.name.eq_ignore_ascii_case(name));
            header.map(|header| header.value)
        };
        let length = match value("content-length") {
            Some(length) => std::str::from_utf8(length)
                .ok()
                .and_then(|length| length.trim().parse::<usize>().ok())
                .ok_or(Fault::BadResponse)?,
            None if status == 304 || status == 204 => 0,
            None => return Err(Fault::BadResponse),
        };
        if bytes.len() < start + length {
            return Ok(None);
        }
        let position = match (value("last-modified"), value("etag")) {
            (Some(modified), Some(tag)) => Some((modified.to_vec(), tag.to_vec())),
            _ => None,
        };
        let boundary = value("content-type")
            .and_then(|kind| kind.strip_prefix(b"multipart/mixed; boundary="))
            .map(<[u8]>::to_vec);
        Ok(Some(Self {
            status,
            length: start + length,
            body: start..start + length,
            position,
            boundary,
        }))
    }

    /// The messages of the answer, oldest first.
    pub fn messages<'a>(&self, bytes: &'a [u8]) -> Result<Vec<&'a [u8]>, Fault> {
        let body = &bytes[self.body.clone()];
        match &self.boundary {
            None => Ok(vec![body]),
            Some(boundary) => parts(body, boundary).ok_or(Fault::BadResponse),
        }
    }
}

/// The data of the parts. `None` if the closing delimiter is missing.
fn parts<'a>(body: &'a [u8], boundary: &[u8]) -> Option<Vec<&'a [u8]>> {
    let delimiter = [b"\r\n--", boundary].concat();
    let mut parts = Vec::new();
    let mut rest = body.strip_prefix(&delimiter[2..])?;
    while rest != b"--\r\n" {
        let part = &rest[find(rest, b"\r\n\r\n")? + 4..];
        let end = find(part, &delimiter)?;
        parts.push(&part[..end]);
        rest = &part[end + delimiter.len()..];
    }
    Some(parts)
}

/// The index of the first occurrence of `part`.
pub fn find(bytes: &[u8], part: &[u8]) -> Option<usize> {
    bytes.windows(part.len()).position(|window| window == part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_what_stands_between_boundaries() {
        let body = b"--B\r\nContent-Type: text/x\r\n\r\none\r\n--B\r\n\r\n\r\n--B\r\n\r\n--A--\r\n--B--\r\n";
        assert_eq!(
            parts(body, b"B").unwrap(),
            [&b"one"[..], b"", b"--A--"].to_vec()
        );
        assert_eq!(parts(&body[..body.len() - 6], b"B"), None);
        assert_eq!(parts(b"one", b"B"), None);
    }

    #[test]
    fn an_answer_is_one_message_unless_it_has_parts() {
        let one = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\none";
        let answer = Answer::read(one).unwrap().unwrap();
        assert_eq!(answer.messages(one), Ok(vec![&b"one"[..]]));
        assert!(Answer::read(&one[..one.len() - 1]).unwrap().is_none());
    }
}
