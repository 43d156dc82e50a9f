//! A client of event streams (server-sent events). A message becomes an event: its first eight
//! bytes are the id, in sixteen hexadecimal digits, and the other bytes are the data. The id line
//! comes first.

use std::os::fd::OwnedFd;

use super::greeting::Greeting;
use super::measurement::Fault;
use super::target::Target;
use super::transport::{Transport, Turn, read};
use crate::poller::Readiness;
use crate::socket::send;

/// Most bytes of a chunk.
const LONGEST_CHUNK: u64 = 1 << 32;

/// Hexadecimal digits of an id.
const ID_DIGITS: usize = 16;

/// Length of the longest field name that is recognised.
const LONGEST_NAME: usize = 4;

/// One event stream on each connection, requested once.
#[derive(Debug)]
pub struct Events {
    request: Vec<u8>,
}

/// A connection: the unsent part of the request, and the state of parsing.
#[derive(Debug)]
pub struct Channel {
    unsent: Vec<u8>,
    greeting: Greeting,
    chunk: Chunk,
    line: Line,
}

/// The position within the chunked encoding.
#[derive(Clone, Copy, Debug)]
enum Chunk {
    /// In the line with the length of a chunk.
    Length(u64),
    /// In the data of a chunk, this many bytes before its end.
    Body(u64),
    /// In the line end after the data.
    End,
}

/// The position within a line of the stream.
#[derive(Clone, Copy, Debug)]
enum Line {
    /// In the field name, of which this many bytes have arrived.
    Name([u8; LONGEST_NAME], usize),
    /// After the colon.
    Colon(Field),
    Value(Field),
}

#[derive(Clone, Copy, Debug)]
enum Field {
    /// The id, and how many of its digits have arrived.
    Id(u64, usize),
    Data,
    /// An ignored field.
    Other,
}

impl Field {
    fn named(name: &[u8]) -> Self {
        match name {
            b"id" => Self::Id(0, 0),
            b"data" => Self::Data,
            _ => Self::Other,
        }
    }
}

const START: Line = Line::Name([0; LONGEST_NAME], 0);

impl Events {
    /// The event stream at `path` of the server at `target`.
    pub fn new(target: &Target, path: &str) -> Self {
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: {target}\r\nAccept: text/event-stream\r\n\r\n");
        Self {
            request: request.into_bytes(),
        }
    }
}

impl Channel {
    /// Calls `take` with the messages in a part of the body.
    #[inline]
    fn messages(
        &mut self,
        mut bytes: &[u8],
        take: &mut impl FnMut(&[u8]) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        while let Some((&byte, rest)) = bytes.split_first() {
            match self.chunk {
                Chunk::Length(length) => {
                    bytes = rest;
                    self.chunk = match (byte, char::from(byte).to_digit(16)) {
                        (_, Some(digit)) if length < LONGEST_CHUNK => {
                            Chunk::Length(length * 16 + u64::from(digit))
                        }
                        (b'\r', _) => Chunk::Length(length),
                        // A chunk of length 0 ends the body.
                        (b'\n', _) if length == 0 => return Err(Fault::Closed),
                        (b'\n', _) => Chunk::Body(length),
                        _ => return Err(Fault::BadResponse),
                    };
                }
                Chunk::Body(left) => {
                    let length = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
                    self.line.read(&bytes[..length], take)?;
                    bytes = &bytes[length..];
                    self.chunk = match left - length as u64 {
                        0 => Chunk::End,
                        left => Chunk::Body(left),
                    };
                }
                Chunk::End => {
                    bytes = rest;
                    self.chunk = match byte {
                        b'\r' => Chunk::End,
                        b'\n' => Chunk::Length(0),
                        _ => return Err(Fault::BadResponse),
                    };
                }
            }
        }
        Ok(())
    }
}

impl Line {
    #[inline]
    fn read(
        &mut self,
        mut bytes: &[u8],
        take: &mut impl FnMut(&[u8]) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        while let Some((&byte, rest)) = bytes.split_first() {
            match *self {
                Self::Name(..) if byte == b'\n' => {
                    *self = START;
                    bytes = rest;
                }
                Self::Name(name, length) if byte == b':' => {
                    *self = Self::Colon(Field::named(&name[..length]));
                    bytes = rest;
                }
                Self::Name(mut name, length) => {
                    bytes = rest;
                    *self = match name.get_mut(length) {
                        Some(next) => {
                            *next = byte;
                            Self::Name(name, length + 1)
                        }
                        // Longer than any recognised name.
                        None => Self::Value(Field::Other),
                    };
                }
                Self::Colon(field) => {
                    if byte == b' ' {
                        bytes = rest;
                    }
                    *self = Self::Value(field);
                }
                Self::Value(Field::Id(id, ID_DIGITS)) if byte == b'\n' => {
                    take(&id.to_be_bytes())?;
                    *self = START;
                    bytes = rest;
                }
                Self::Value(Field::Id(id, digits)) => {
                    let digit = char::from(byte).to_digit(16);
                    let digit = digit.filter(|_| digits < ID_DIGITS);
                    let digit = digit.ok_or(Fault::BadResponse)?;
                    *self = Self::Value(Field::Id(id << 4 | u64::from(digit), digits + 1));
                    bytes = rest;
                }
                Self::Value(field) => {
                    let end = bytes.iter().position(|&byte| byte == b'\n');
                    let value = &bytes[..end.unwrap_or(bytes.len())];
                    if matches!(field, Field::Data) {
                        take(value)?;
                    }
                    bytes = &bytes[value.len()..];
                    if end.is_some() {
                        bytes = &bytes[1..];
                        *self = START;
                    }
                }
            }
        }
        Ok(())
    }
}

impl Transport for Events {
    type Channel = Channel;

    fn open(&self) -> Channel {
        Channel {
            unsent: self.request.clone(),
            greeting: Greeting::default(),
            chunk: Chunk::Length(0),
            line: START,
        }
    }

    fn greet(
        &self,
        channel: &mut Channel,
        socket: &OwnedFd,
        readiness: Readiness,
        scratch: &mut [u8],
    ) -> Result<bool, Fault> {
        self.flush(channel, socket)?;
        if readiness.readable() {
            read(socket, readiness, scratch, |bytes| {
                match channel.greeting.read(bytes, b"200")? {
                    // Broadcasts before the start are not counted.
                    Some(body) => channel.messages(body, &mut |_| Ok(())),
                    None => Ok(()),
                }
            })?;
        }
        Ok(channel.greeting.is_whole())
    }

    /// An event stream has no messages from the client: all bytes are accepted and dropped.
    fn send(&self, _: &mut Channel, _: &OwnedFd, bytes: &[u8]) -> Result<usize, Fault> {
        Ok(bytes.len())
    }

    fn flush(&self, channel: &mut Channel, socket: &OwnedFd) -> Result<(), Fault> {
        if !channel.unsent.is_empty() {
            let sent = send(socket, &channel.unsent)?;
            channel.unsent.drain(..sent);
        }
        Ok(())
    }

    #[inline]
    fn read(
        &self,
        channel: &mut Channel,
        socket: &OwnedFd,
        readiness: Readiness,
        scratch: &mut [u8],
        mut take: impl FnMut(&[u8]) -> Result<(), Fault>,
    ) -> Result<Turn, Fault> {
        read(socket, readiness, scratch, |bytes| {
            channel.messages(bytes, &mut take)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn channel() -> Channel {
        Channel {
            unsent: Vec::new(),
            greeting: Greeting::default(),
            chunk: Chunk::Length(0),
            line: START,
        }
    }

    fn messages(stream: &[u8], piece: usize) -> Result<Vec<u8>, Fault> {
        let mut channel = channel();
        let mut found = Vec::new();
        for bytes in stream.chunks(piece) {
            channel.messages(bytes, &mut |bytes| {
                found.extend_from_slice(bytes);
                Ok(())
            })?;
        }
        Ok(found)
    }

    #[test]
    fn messages_are_found_however_the_stream_is_cut() {
        // A comment, an ignored field, and an event over two chunks.
        let events = [
            "b\r\n: welcome\n\n\r\n",
            "1a\r\nretry: 7\nid: 0102030405060\r\n",
            "15\r\n708\ndata:a\ndata: b:\n\n\r\n",
        ];
        let stream = events.concat();
        for piece in 1..=stream.len() {
            let expected = [&[1, 2, 3, 4, 5, 6, 7, 8][..], b"ab:"].concat();
            assert_eq!(messages(stream.as_bytes(), piece), Ok(expected));
        }
    }

    #[test]
    fn what_is_no_such_stream_is_refused() {
        for wrong in [
            &b"id: 1\n"[..],
            b"6\r\nid: 1\n\r\n",
            b"18\r\nid: 01020304050607080910\n\n\r\n",
            b"fffffffffffff\r\n",
            b"1\r\n\n!",
        ] {
            assert_eq!(messages(wrong, wrong.len()), Err(Fault::BadResponse));
        }
        assert_eq!(messages(b"0\r\n\r\n", 5), Err(Fault::Closed));
    }
}
