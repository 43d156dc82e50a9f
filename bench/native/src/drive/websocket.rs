//! A WebSocket client (RFC 6455): each message is a binary frame. The mask is zero, which costs
//! the server as much as any other.

use std::os::fd::OwnedFd;

use super::greeting::Greeting;
use super::measurement::Fault;
use super::target::Target;
use super::transport::{Transport, Turn, read};
use crate::poller::Readiness;
use crate::socket::send;

/// Messages of one size, each in a frame.
#[derive(Debug)]
pub struct WebSocket {
    handshake: Vec<u8>,
    size: usize,
}

/// A connection: unsent bytes, and the state of parsing.
#[derive(Debug, Default)]
pub struct Channel {
    unsent: Vec<u8>,
    greeting: Greeting,
    head: FrameHead,
    /// Bytes left in the current payload.
    left: u64,
}

/// The received part of a frame's head.
#[derive(Debug, Default)]
struct FrameHead {
    bytes: [u8; 10],
    length: usize,
}

impl WebSocket {
    /// Messages of `size` bytes to a server at `target`, after a handshake for `path`.
    pub fn new(target: &Target, path: &str, size: usize) -> Self {
        let handshake = format!(
            "GET {path} HTTP/1.1\r\nHost: {target}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        );
        Self {
            handshake: handshake.into_bytes(),
            size,
        }
    }
}

impl FrameHead {
    /// Takes the next byte. Returns the payload's length when the head is complete.
    fn push(&mut self, byte: u8) -> Result<Option<u64>, Fault> {
        self.bytes[self.length] = byte;
        self.length += 1;
        if self.length < 2 {
            return Ok(None);
        }
        // Only unfragmented binary frames without a mask, because servers do not mask.
        if self.bytes[0] != 0x82 || self.bytes[1] > 127 {
            return Err(Fault::BadResponse);
        }
        let more = match self.bytes[1] {
            126 => 2,
            127 => 8,
            _ => 0,
        };
        if self.length < 2 + more {
            return Ok(None);
        }
        let length = match more {
            0 => u64::from(self.bytes[1]),
            _ => self.bytes[2..2 + more]
                .iter()
                .fold(0, |length, byte| length << 8 | u64::from(*byte)),
        };
        self.length = 0;
        Ok(Some(length))
    }
}

impl Channel {
    /// Calls `take` with the payloads in the received bytes.
    #[inline]
    fn payloads(
        &mut self,
        mut bytes: &[u8],
        take: &mut impl FnMut(&[u8]) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        while !bytes.is_empty() {
            if self.left == 0 {
                self.left = self.head.push(bytes[0])?.unwrap_or(0);
                bytes = &bytes[1..];
                continue;
            }
            let length = usize::try_from(self.left)
                .unwrap_or(usize::MAX)
                .min(bytes.len());
            take(&bytes[..length])?;
            self.left -= length as u64;
            bytes = &bytes[length..];
        }
        Ok(())
    }
}

impl Transport for WebSocket {
    type Channel = Channel;

    fn open(&self) -> Channel {
        Channel {
            unsent: self.handshake.clone(),
            ..Channel::default()
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
                match channel.greeting.read(bytes, b"101")? {
                    // Broadcasts before the start are not counted.
                    Some(frames) => channel.payloads(frames, &mut |_| Ok(())),
                    None => Ok(()),
                }
            })?;
        }
        Ok(channel.greeting.is_whole())
    }

    #[inline]
    fn send(&self, channel: &mut Channel, socket: &OwnedFd, bytes: &[u8]) -> Result<usize, Fault> {
        for message in bytes.chunks(self.size) {
            let length = message.len();
            channel.unsent.push(0x82);
            match length {
                0..=125 => channel.unsent.push(0x80 | length as u8),
                126..=0xffff => {
                    channel.unsent.push(0x80 | 126);
                    channel
                        .unsent
                        .extend_from_slice(&(length as u16).to_be_bytes());
                }
                _ => {
                    channel.unsent.push(0x80 | 127);
                    channel
                        .unsent
                        .extend_from_slice(&(length as u64).to_be_bytes());
                }
            }
            channel.unsent.extend_from_slice(&[0; 4]);
            channel.unsent.extend_from_slice(message);
        }
        self.flush(channel, socket)?;
        Ok(bytes.len())
    }

    #[inline]
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
            channel.payloads(bytes, &mut take)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payloads_are_found_however_the_stream_is_cut() {
        let mut stream = vec![0x82, 3, 1, 2, 3, 0x82, 0, 0x82, 126, 0, 200];
        stream.resize(stream.len() + 200, 7);
        stream.extend_from_slice(&[0x82, 127, 0, 0, 0, 0, 0, 0, 0, 2, 8, 9]);
        let expected = [vec![1, 2, 3], vec![7; 200], vec![8, 9]].concat();
        for piece in 1..=stream.len() {
            let mut channel = Channel::default();
            let mut found = Vec::new();
            for bytes in stream.chunks(piece) {
                let taken = channel.payloads(bytes, &mut |bytes| {
                    found.extend_from_slice(bytes);
                    Ok(())
                });
                assert!(taken.is_ok());
            }
            assert_eq!(found, expected);
        }
    }
}
