//! The boundary of WebSocket. A call is bounded by what [`decoder`] takes at once. Messages that
//! take longer than a timeslice to inflate or deflate go to the functions on dirty schedulers; the
//! Erlang side chooses.

use rustler::{Binary, Encoder, Env, Error, NewBinary, NifResult, Term, schedule};

use crate::nif::{binary, with_scratch};
use crate::websocket::decoder::{Decoder, Frame, Kind, Limits, Message, Sink, Stop};
use crate::websocket::deflate;
use crate::websocket::frame::{self, Fault, TEXT};
use crate::websocket::handshake;
use crate::websocket::mask::unmask;
use crate::websocket::text::{self, Text};

mod atoms {
    rustler::atoms! {
        text, binary, piece, compressed, ping, pong, close, more, again, closed, failed, none, too_long, not_text,
        bad_key, frame, not_masked, length, control, close_code, too_big, inflate
    }
}

/// Bytes that are unmasked in a hundredth of a timeslice.
const BYTES_PER_PERCENT: usize = 16 * 1024;

/// Bits of the flags in [`Progress`].
const IS_TEXT: u32 = 1;
const IS_COMPRESSED: u32 = 2;
const HAS_FRAME: u32 = 4;
const IS_FINAL: u32 = 8;

/// The state of a decoder as a term: flags, bytes of the message, its incomplete character, bytes
/// left of the frame, its mask.
type Progress = (u32, u64, u32, u64, u32);

fn decoder(progress: Term<'_>) -> NifResult<Decoder> {
    if progress.is_atom() {
        return Ok(Decoder::default());
    }
    let (flags, size, text, left, mask): Progress = progress.decode()?;
    let message = Message {
        kind: if flags & IS_TEXT != 0 { Kind::Text } else { Kind::Binary },
        is_compressed: flags & IS_COMPRESSED != 0,
        size,
        text: Text::from_number(text).ok_or(Error::BadArg)?,
    };
    let frame = Frame { is_final: flags & IS_FINAL != 0, left, mask: mask.to_le_bytes() };
    let frame = (flags & HAS_FRAME != 0).then_some(frame);
    if flags > 15 || frame.is_some_and(|frame| frame.left == 0) {
        return Err(Error::BadArg);
    }
    Ok(Decoder { message: Some(message), frame })
}

fn progress<'a>(env: Env<'a>, decoder: Decoder) -> Term<'a> {
    let Some(message) = decoder.message else { return atoms::none().encode(env) };
    let flag = |is_set: bool, flag: u32| if is_set { flag } else { 0 };
    let frame = decoder.frame.unwrap_or(Frame { is_final: false, left: 0, mask: [0; 4] });
    let flags = flag(message.kind == Kind::Text, IS_TEXT)
        | flag(message.is_compressed, IS_COMPRESSED)
        | flag(decoder.frame.is_some(), HAS_FRAME)
        | flag(frame.is_final, IS_FINAL);
    (flags, message.size, message.text.number(), frame.left, u32::from_le_bytes(frame.mask)).encode(env)
}

/// Converts decoded items to terms.
struct Items<'a> {
    env: Env<'a>,
    items: Vec<Term<'a>>,
    plain: Option<NewBinary<'a>>,
}

impl<'a> Items<'a> {
    fn take(&mut self) -> Term<'a> {
        self.plain.take().unwrap_or_else(|| NewBinary::new(self.env, 0)).into()
    }

    fn push(&mut self, item: impl Encoder) {
        self.items.push(item.encode(self.env));
    }

    fn list(self) -> Term<'a> {
        self.items.encode(self.env)
    }
}

fn kind_atom(kind: Kind) -> rustler::Atom {
    match kind {
        Kind::Text => atoms::text(),
        Kind::Binary => atoms::binary(),
    }
}

impl Sink for Items<'_> {
    fn unmask(&mut self, masked: &[u8], mask: [u8; 4]) -> &[u8] {
        let plain = self.plain.insert(NewBinary::new(self.env, masked.len()));
        unmask(masked, plain.as_mut_slice(), mask);
        plain.as_slice()
    }

    fn piece(&mut self) {
        let bytes = self.take();
        self.push((atoms::piece(), bytes));
    }

    fn end(&mut self, kind: Kind, is_compressed: bool) {
        let bytes = self.take();
        match is_compressed {
            false => self.push((kind_atom(kind), bytes)),
            true => self.push((atoms::compressed(), kind_atom(kind), bytes)),
        }
    }

    fn ping(&mut self) {
        let bytes = self.take();
        self.push((atoms::ping(), bytes));
    }

    fn pong(&mut self) {
        let bytes = self.take();
        self.push((atoms::pong(), bytes));
    }

    fn close(&mut self, code: Option<u16>) {
        let plain = self.plain.take();
        let reason = plain.as_ref().and_then(|bytes| bytes.as_slice().get(2..)).unwrap_or_default();
        let reason = binary(self.env, reason);
        match code {
            Some(code) => self.push((atoms::close(), code, reason)),
            None => self.push((atoms::close(), atoms::none(), reason)),
        }
    }
}

fn fault_atom(fault: Fault) -> rustler::Atom {
    match fault {
        Fault::Frame => atoms::frame(),
        Fault::NotMasked => atoms::not_masked(),
        Fault::Length => atoms::length(),
        Fault::Control => atoms::control(),
        Fault::CloseCode => atoms::close_code(),
        Fault::NotText => atoms::not_text(),
        Fault::TooBig => atoms::too_big(),
        Fault::Inflate => atoms::inflate(),
    }
}

fn took(env: Env<'_>, bytes: usize) {
    if bytes >= BYTES_PER_PERCENT {
        schedule::consume_timeslice(env, (bytes / BYTES_PER_PERCENT).min(100) as i32);
    }
}

#[rustler::nif]
fn frames<'a>(env: Env<'a>, data: Binary<'a>, begun: Term<'a>, most: u64, may_compress: bool) -> NifResult<Term<'a>> {
    let mut decoder = decoder(begun)?;
    let mut items = Items { env, items: Vec::new(), plain: None };
    let limits = Limits { message: most, may_compress };
    let decoded = match decoder.decode(&data, limits, &mut items) {
        Ok(decoded) => decoded,
        Err(fault) => {
            items.push((atoms::failed(), fault.close_code(), fault_atom(fault)));
            return Ok(items.list());
        }
    };
    took(env, decoded.end);
    let stop = match decoded.stop {
        Stop::Input if decoded.end == data.len() && decoder.message.is_none() => return Ok(items.list()),
        Stop::Input => atoms::more(),
        Stop::Budget => atoms::again(),
        Stop::Closed => atoms::closed(),
    };
    Ok((stop, items.list(), progress(env, decoder), decoded.end).encode(env))
}

#[rustler::nif]
fn frame<'a>(env: Env<'a>, first: u8, payload: Binary<'a>) -> Term<'a> {
    if first & 0x4f == TEXT && !text::is_text(&payload) {
        return atoms::not_text().encode(env);
    }
    let (head, length) = frame::head(first, payload.len() as u64);
    let mut made = NewBinary::new(env, length + payload.len());
    let (begin, rest) = made.as_mut_slice().split_at_mut(length);
    begin.copy_from_slice(&head[..length]);
    rest.copy_from_slice(&payload);
    took(env, payload.len());
    made.into()
}

#[rustler::nif]
fn is_text<'a>(env: Env<'a>, bytes: Binary<'a>) -> bool {
    took(env, bytes.len());
    text::is_text(&bytes)
}

#[rustler::nif]
fn accept<'a>(env: Env<'a>, key: Binary<'a>) -> Term<'a> {
    match handshake::accept(&key) {
        Some(accept) => binary(env, accept.as_bytes()),
        None => atoms::bad_key().encode(env),
    }
}

fn inflated<'a>(env: Env<'a>, window: &[u8], message: &[u8], most: usize, text: bool) -> Term<'a> {
    with_scratch(|out| {
        let fault = match deflate::inflate(window, message, most, out) {
            Ok(true) if text && !text::is_text(out) => Fault::NotText,
            Ok(true) => return binary(env, out),
            Ok(false) => return atoms::too_long().encode(env),
            Err(fault) => fault,
        };
        (atoms::failed(), fault.close_code(), fault_atom(fault)).encode(env)
    })
}

#[rustler::nif]
fn inflate<'a>(env: Env<'a>, window: Binary<'a>, message: Binary<'a>, most: usize, text: bool) -> Term<'a> {
    // Inflating takes ten times as long as unmasking.
    let term = inflated(env, &window, &message, most, text);
    took(env, 10 * most.min(message.len() * 4));
    term
}

#[rustler::nif(schedule = "DirtyCpu")]
fn inflate_large<'a>(env: Env<'a>, window: Binary<'a>, message: Binary<'a>, most: usize, text: bool) -> Term<'a> {
    inflated(env, &window, &message, most, text)
}

fn deflated<'a>(env: Env<'a>, window: &[u8], message: &[u8], level: u8, bits: u8) -> NifResult<Term<'a>> {
    with_scratch(|out| {
        deflate::deflate(window, message, level, bits, out).map_err(|_| Error::BadArg)?;
        Ok(binary(env, out))
    })
}

#[rustler::nif]
fn deflate<'a>(env: Env<'a>, window: Binary<'a>, message: Binary<'a>, level: u8, bits: u8) -> NifResult<Term<'a>> {
    took(env, 40 * message.len());
    deflated(env, &window, &message, level, bits)
}

#[rustler::nif(schedule = "DirtyCpu")]
fn deflate_large<'a>(
    env: Env<'a>,
    window: Binary<'a>,
    message: Binary<'a>,
    level: u8,
    bits: u8,
) -> NifResult<Term<'a>> {
    deflated(env, &window, &message, level, bits)
}
