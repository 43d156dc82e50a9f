//! A message of a group, which all members share.

use std::sync::{Arc, OnceLock};

use rustler::Binary;

use crate::term::held::HeldBinary;
use crate::value::packet::{self, Packet};

/// Messages from this size on are held by reference; below it, one copy is cheaper.
const HELD: usize = 1024;

/// The bytes of a message, shared by all members.
pub struct Message {
    bytes: Bytes,
    /// The bytes with a length of 1, 2 or 4 bytes in front, made for the first member that needs
    /// it.
    framed: [OnceLock<Box<[u8]>>; 3],
}

enum Bytes {
    Copied(Box<[u8]>),
    Held(HeldBinary),
}

impl Message {
    /// Creates a message from a binary.
    pub fn new(binary: &Binary) -> Message {
        let bytes = match binary.len() < HELD {
            true => Bytes::Copied(binary.as_slice().into()),
            false => Bytes::Held(HeldBinary::new(binary)),
        };
        Message { bytes, framed: [const { OnceLock::new() }; 3] }
    }

    fn body(&self) -> &[u8] {
        match &self.bytes {
            Bytes::Copied(bytes) => bytes,
            Bytes::Held(held) => held.as_ref(),
        }
    }

    /// Size in bytes.
    pub fn len(&self) -> usize {
        self.body().len()
    }

    /// The bytes to send on a socket with this packet type. `None` if the message is too long for
    /// it.
    pub fn framed(&self, packet: Packet) -> Option<&[u8]> {
        let body = self.body();
        let (header, size) = packet::header(packet, body.len())?;
        let place = match size {
            0 => return Some(body),
            1 => 0,
            2 => 1,
            _ => 2,
        };
        Some(self.framed[place].get_or_init(|| [&header[..size], body].concat().into_boxed_slice()))
    }
}

/// The rest of a message for a member.
pub struct Rest {
    message: Arc<Message>,
    packet: Packet,
    skip: usize,
}

impl Rest {
    /// The message with this packet type's header, without the first `skip` bytes.
    pub fn new(message: Arc<Message>, packet: Packet, skip: usize) -> Rest {
        Rest { message, packet, skip }
    }
}

impl AsRef<[u8]> for Rest {
    fn as_ref(&self) -> &[u8] {
        self.message.framed(self.packet).map_or(&[], |bytes| &bytes[self.skip..])
    }
}
