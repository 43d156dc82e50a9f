//! The frames of a client, from bytes to what a connection has to do.
//!
//! [`Decoder`] is what has begun and is not over: a message, and a frame of it. It is small, and between messages it is
//! nothing. A header or a control frame that has not come whole is left to the caller, who has it come again with what
//! follows: 131 bytes at most.

use super::frame::{self, BINARY, CLOSE, CONTINUATION, Fault, Header, PING, PONG, TEXT};
use super::mask::advance;
use super::text::{Text, is_text};

/// The most bytes that one call makes of frames, and the most frames that it takes: about 100 microseconds.
pub const MOST_BYTES: usize = 256 * 1024;
pub const MOST_FRAMES: usize = 1024;

/// What a connection allows.
#[derive(Clone, Copy)]
pub struct Limits {
    /// Bytes of a message, as it comes.
    pub message: u64,
    /// Whether permessage-deflate was negotiated.
    pub may_compress: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Text,
    Binary,
}

/// A message whose end has not come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    pub kind: Kind,
    pub is_compressed: bool,
    /// Bytes of its frames so far, the whole of the one in progress included.
    pub size: u64,
    pub text: Text,
}

/// A frame whose payload has not come whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    pub is_final: bool,
    pub left: u64,
    pub mask: [u8; 4],
}

/// What has begun.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Decoder {
    pub message: Option<Message>,
    /// There is one only in a message.
    pub frame: Option<Frame>,
}

/// What the caller does with each thing that was decoded. Payloads are masked: `mask` is that of their first byte.
pub trait Sink {
    /// A payload, to be unmasked; returns the plain bytes.
    fn unmask(&mut self, masked: &[u8], mask: [u8; 4]) -> &[u8];
    /// The bytes of the last unmask/2 are a piece of a message that goes on.
    fn piece(&mut self);
    /// They are the end of a message.
    fn end(&mut self, kind: Kind, is_compressed: bool);
    fn ping(&mut self);
    fn pong(&mut self);
    /// They begin with the code, if there is one.
    fn close(&mut self, code: Option<u16>);
}

/// How far the bytes were decoded.
#[derive(Debug, PartialEq, Eq)]
pub struct Decoded {
    /// Bytes that were taken.
    pub end: usize,
    /// Why it was not more.
    pub stop: Stop,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Stop {
    /// What is left, if anything, is not whole.
    Input,
    /// It was enough for one call.
    Budget,
    /// Nothing comes behind a close frame.
    Closed,
}

impl Decoder {
    /// Decodes some bytes. What stands before a fault was given to the sink.
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

    /// The header of a frame of a message.
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

    /// Bytes of the frame in progress.
    fn payload(&mut self, masked: &[u8], frame: Frame, sink: &mut impl Sink) -> Result<(), Fault> {
        let Some(message) = &mut self.message else { return Err(Fault::Frame) };
        let left = frame.left - masked.len() as u64;
        let is_end = left == 0 && frame.is_final;
        if !masked.is_empty() || is_end {
            let plain = sink.unmask(masked, frame.mask);
            // What is compressed is looked at when it is inflated.
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
