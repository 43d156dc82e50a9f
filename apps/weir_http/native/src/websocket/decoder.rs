//! Decodes the frames of a client.
//!
//! [`Decoder`] is the state between calls: an unfinished message, and an unfinished frame of it.
//! It is small, and empty between messages. An incomplete header or control frame (131 bytes at
//! most) is not taken: the caller passes it again with the bytes that follow.

use super::frame::{self, BINARY, CLOSE, CONTINUATION, Fault, Header, PING, PONG, TEXT};
use super::mask::advance;
use super::text::{Text, is_text};

/// Limits of one call, in bytes and in frames: about 100 microseconds.
pub const MOST_BYTES: usize = 256 * 1024;
pub const MOST_FRAMES: usize = 1024;

/// Limits of a connection.
#[derive(Clone, Copy)]
pub struct Limits {
    /// Bytes of a message, before inflating.
    pub message: u64,
    /// Whether permessage-deflate was negotiated.
    pub may_compress: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Text,
    Binary,
}

/// An unfinished message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    pub kind: Kind,
    pub is_compressed: bool,
    /// Bytes of its frames so far, including all of the current one.
    pub size: u64,
    pub text: Text,
}

/// An unfinished frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    pub is_final: bool,
    pub left: u64,
    pub mask: [u8; 4],
}

/// The state between calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Decoder {
    pub message: Option<Message>,
    /// Only set within a message.
    pub frame: Option<Frame>,
}

/// Receives what was decoded. Payloads are passed masked: `mask` is that of their first byte.
pub trait Sink {
    /// Unmasks a payload; returns the plain bytes.
    fn unmask(&mut self, masked: &[u8], mask: [u8; 4]) -> &[u8];
    /// The bytes of the last unmask/2 are a piece of an unfinished message.
    fn piece(&mut self);
    /// The bytes are the end of a message.
    fn end(&mut self, kind: Kind, is_compressed: bool);
    fn ping(&mut self);
    fn pong(&mut self);
    /// The bytes begin with the code, if there is one.
    fn close(&mut self, code: Option<u16>);
}

/// The result of a call.
#[derive(Debug, PartialEq, Eq)]
pub struct Decoded {
    /// Bytes taken.
    pub end: usize,
    /// Why decoding stopped.
    pub stop: Stop,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Stop {
    /// The input is used up, or its rest is incomplete.
    Input,
    /// The limits of one call are reached.
    Budget,
    /// A close frame was decoded, which is the last frame.
    Closed,
}

impl Decoder {
    /// Decodes bytes. Items before a fault have been passed to the sink.
    pub fn decode(&mut self, bytes: &[u8], limits: Limits, sink: &mut impl Sink) -> Result<Decoded, Fault> {
        let mut at = 0;
        for _ in 0..MOST_FRAMES {
            if at >= MOST_BYTES {
                return Ok(Decoded { end: at, stop: Stop::Budget });
            }
            if let Some(frame) = self.frame {
                let here = usize::try_from(frame.left).unwrap_or(usize::MAX).min(bytes.len() - at).min(MOST_BYTES);
                if here == 0 {
                    return Ok(Decoded { end: at, stop: Stop::Input });
                }
                self.payload(&bytes[at..at + here], frame, sink)?;
                at += here;
                continue;
            }
            let rest = &bytes[at..];
            let Some((header, begin)) = frame::parse(rest, limits.may_compress)? else {
                return Ok(Decoded { end: at, stop: Stop::Input });
            };
            if header.is_control() {
                let end = begin + header.length as usize;
                let Some(payload) = rest.get(begin..end) else { return Ok(Decoded { end: at, stop: Stop::Input }) };
                control(header, payload, sink)?;
                at += end;
                if header.opcode == CLOSE {
                    return Ok(Decoded { end: at, stop: Stop::Closed });
                }
            } else {
                self.begin(header, limits)?;
                at += begin;
                let frame = Frame { is_final: header.is_final, left: header.length, mask: header.mask };
                if header.length == 0 {
                    self.payload(&[], frame, sink)?;
                } else {
                    self.frame = Some(frame);
                }
            }
        }
        Ok(Decoded { end: at, stop: Stop::Budget })
    }

    /// Handles the header of a data frame.
    fn begin(&mut self, header: Header, limits: Limits) -> Result<(), Fault> {
        let message = match (header.opcode, &mut self.message) {
            (CONTINUATION, Some(message)) => message,
            (TEXT | BINARY, message @ None) => message.insert(Message {
                kind: if header.opcode == TEXT { Kind::Text } else { Kind::Binary },
                is_compressed: header.is_compressed,
                size: 0,
                text: Text::default(),
            }),
            _ => return Err(Fault::Frame),
        };
        message.size = message.size.saturating_add(header.length);
        if message.size > limits.message {
            return Err(Fault::TooBig);
        }
        Ok(())
    }

    /// Handles bytes of the current frame.
    fn payload(&mut self, masked: &[u8], frame: Frame, sink: &mut impl Sink) -> Result<(), Fault> {
        let Some(message) = &mut self.message else { return Err(Fault::Frame) };
        let left = frame.left - masked.len() as u64;
        let is_end = left == 0 && frame.is_final;
        if !masked.is_empty() || is_end {
            let plain = sink.unmask(masked, frame.mask);
            // Compressed text is checked after inflating.
            if message.kind == Kind::Text && !message.is_compressed {
                message.text.feed(plain).map_err(|_| Fault::NotText)?;
                if is_end && !message.text.is_whole() {
                    return Err(Fault::NotText);
                }
            }
        }
        if is_end {
            sink.end(message.kind, message.is_compressed);
            self.message = None;
        } else if !masked.is_empty() {
            sink.piece();
        }
        self.frame = (left > 0).then(|| Frame { left, mask: advance(frame.mask, masked.len()), ..frame });
        Ok(())
    }
}

fn control(header: Header, masked: &[u8], sink: &mut impl Sink) -> Result<(), Fault> {
    let plain = sink.unmask(masked, header.mask);
    match header.opcode {
        PING => sink.ping(),
        PONG => sink.pong(),
        _ => {
            let code = match plain {
                [] => None,
                [high, low, reason @ ..] => {
                    let code = u16::from_be_bytes([*high, *low]);
                    if !frame::may_close(code) {
                        return Err(Fault::CloseCode);
                    }
                    if !is_text(reason) {
                        return Err(Fault::NotText);
                    }
                    Some(code)
                }
                [_] => return Err(Fault::CloseCode),
            };
            sink.close(code);
        }
    }
    Ok(())
}

#[cfg(test)]
#[path = "decoder_tests.rs"]
mod tests;
