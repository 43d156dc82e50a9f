//! The boundary: decodes arguments, calls, encodes results. A wrong argument is a `badarg`. Calls
//! keep no state. Their time is bounded by the bytes that they are given: those of one read, or of
//! a head.

use std::cell::RefCell;
use std::net::IpAddr;
use std::ops::Range;

use rustler::types::atom::undefined;
use rustler::types::tuple::get_tuple;
use rustler::{Atom, Binary, Encoder, Env, Error, NewBinary, NifResult, Term};

use crate::chunked::{Decoder, Phase};
use crate::date;
use crate::fields;
use crate::head::{self, Limits};
use crate::log::{self, Entry, Peer, Request};
use crate::meaning::Body;
use crate::refusal::Refusal;
use crate::response::{self, Forbidden};

mod atoms {
    rustler::atoms! {
        more, refused, forbidden, close, keep, trailers,
        syntax, bare_line_feed, method, target, version, host, content_length, transfer_encoding, coding, expectation,
        line_too_long, fields_too_large, chunk, body_too_large
    }
}

/// Methods that are numbers in Erlang, from 1 on (see `weir_http_request:method/1`).
const METHODS: [&[u8]; 7] = [b"GET", b"HEAD", b"POST", b"PUT", b"DELETE", b"OPTIONS", b"PATCH"];

thread_local! {
    /// A buffer for a response or a body, which is copied to a binary once its length is known.
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// A larger scratch buffer is freed after use.
const SCRATCH_KEPT: usize = 64 * 1024;

pub fn with_scratch<T>(use_it: impl FnOnce(&mut Vec<u8>) -> T) -> T {
    SCRATCH.with_borrow_mut(|scratch| {
        scratch.clear();
        let result = use_it(scratch);
        if scratch.capacity() > SCRATCH_KEPT {
            *scratch = Vec::new();
        }
        result
    })
}

pub fn binary<'a>(env: Env<'a>, bytes: &[u8]) -> Term<'a> {
    let mut binary = NewBinary::new(env, bytes.len());
    binary.as_mut_slice().copy_from_slice(bytes);
    binary.into()
}

fn reason(refusal: Refusal) -> Atom {
    match refusal {
        Refusal::Syntax => atoms::syntax(),
        Refusal::BareLineFeed => atoms::bare_line_feed(),
        Refusal::Method => atoms::method(),
        Refusal::Target => atoms::target(),
        Refusal::Version => atoms::version(),
        Refusal::Host => atoms::host(),
        Refusal::ContentLength => atoms::content_length(),
        Refusal::TransferEncoding => atoms::transfer_encoding(),
        Refusal::Coding => atoms::coding(),
        Refusal::Expectation => atoms::expectation(),
        Refusal::LineTooLong => atoms::line_too_long(),
        Refusal::FieldsTooLarge => atoms::fields_too_large(),
        Refusal::Chunk => atoms::chunk(),
        Refusal::BodyTooLarge => atoms::body_too_large(),
    }
}

fn refused(env: Env<'_>, refusal: Refusal) -> Term<'_> {
    (atoms::refused(), refusal.status(), reason(refusal)).encode(env)
}

/// Returns the bytes of a binary from an offset on.
fn rest<'b>(data: &'b Binary<'_>, offset: usize) -> NifResult<&'b [u8]> {
    data.as_slice().get(offset..).ok_or(Error::BadArg)
}

fn part<'a>(data: &Binary<'a>, offset: usize, range: Range<usize>) -> NifResult<Binary<'a>> {
    data.make_subbinary(offset + range.start, range.len())
}

#[rustler::nif]
fn head<'a>(env: Env<'a>, data: Binary<'a>, offset: usize, limits: (usize, usize, usize)) -> NifResult<Term<'a>> {
    let (line, head, fields) = limits;
    let bytes = rest(&data, offset)?;
    let parsed = match head::parse(bytes, Limits { line, head, fields }) {
        Ok(Some(parsed)) => parsed,
        Ok(None) => return Ok(atoms::more().encode(env)),
        Err(refusal) => return Ok(refused(env, refusal)),
    };
    let name = &bytes[parsed.method.clone()];
    let method = match METHODS.iter().position(|known| *known == name) {
        Some(number) => (number + 1).encode(env),
        None => part(&data, offset, parsed.method)?.encode(env),
    };
    let optional = |range: Option<Range<usize>>| match range {
        Some(range) => part(&data, offset, range).map(|binary| binary.encode(env)),
        None => Ok(undefined().encode(env)),
    };
    let length = match parsed.body {
        Body::Chunked => (-1).encode(env),
        Body::Length(length) => length.encode(env),
    };
    let path = optional(parsed.path)?;
    let query = optional(parsed.query)?;
    let fields = part(&data, offset, parsed.fields)?;
    Ok((method, path, query, fields, parsed.flags, length, offset + parsed.end).encode(env))
}

#[rustler::nif]
fn field<'a>(env: Env<'a>, head: Binary<'a>, name: Binary<'a>) -> NifResult<Term<'a>> {
    let mut values = fields::iter(&head).filter(|(known, _)| known.eq_ignore_ascii_case(&name)).map(|(_, value)| value);
    let Some(first) = values.next() else { return Ok(undefined().encode(env)) };
    let Some(second) = values.next() else {
        let begin = first.as_ptr() as usize - head.as_ptr() as usize;
        return Ok(head.make_subbinary(begin, first.len())?.encode(env));
    };
    // Cookies are the one list that is not separated by commas (RFC 9113, 8.2.3).
    let separator: &[u8] = if name.eq_ignore_ascii_case(b"cookie") { b"; " } else { b", " };
    Ok(with_scratch(|joined| {
        joined.extend_from_slice(first);
        for value in std::iter::once(second).chain(values) {
            joined.extend_from_slice(separator);
            joined.extend_from_slice(value);
        }
        binary(env, joined)
    }))
}

#[rustler::nif]
fn fields<'a>(env: Env<'a>, head: Binary<'a>) -> NifResult<Vec<(Term<'a>, Binary<'a>)>> {
    let begin = head.as_ptr() as usize;
    fields::iter(&head)
        .map(|(name, value)| {
            let lower = binary(env, &name.to_ascii_lowercase());
            Ok((lower, head.make_subbinary(value.as_ptr() as usize - begin, value.len())?))
        })
        .collect()
}

/// The progress in a body as a term: phase, bytes left in the chunk, overhead, total.
type Progress = (u8, u64, u64, u64);

#[rustler::nif]
fn chunks<'a>(env: Env<'a>, progress: Progress, data: Binary<'a>, offset: usize, most: u64) -> NifResult<Term<'a>> {
    let (phase, left, overhead, total) = progress;
    let phase = Phase::from_number(phase).ok_or(Error::BadArg)?;
    let mut decoder = Decoder { phase, left, overhead, total };
    let bytes = rest(&data, offset)?;
    with_scratch(|body| {
        let taken = match decoder.decode(bytes, most, |data| body.extend_from_slice(data)) {
            Ok(taken) => taken,
            Err(refusal) => return Ok(refused(env, refusal)),
        };
        let body = binary(env, body);
        Ok(match decoder.phase {
            Phase::Last => (atoms::trailers(), body, decoder.total, offset + taken).encode(env),
            phase => (atoms::more(), body, (phase as u8, decoder.left, decoder.overhead, decoder.total)).encode(env),
        })
    })
}

#[rustler::nif]
fn trailers<'a>(env: Env<'a>, data: Binary<'a>, offset: usize, limits: (usize, usize, usize)) -> NifResult<Term<'a>> {
    lines(env, data, offset, limits, head::parse_trailers)
}

#[rustler::nif]
fn part_head<'a>(env: Env<'a>, data: Binary<'a>, offset: usize, limits: (usize, usize, usize)) -> NifResult<Term<'a>> {
    lines(env, data, offset, limits, head::parse_part_head)
}

/// Parses lines of fields up to an empty line.
fn lines<'a>(
    env: Env<'a>,
    data: Binary<'a>,
    offset: usize,
    (line, head, fields): (usize, usize, usize),
    parse: fn(&[u8], Limits) -> Result<Option<head::Lines>, Refusal>,
) -> NifResult<Term<'a>> {
    match parse(rest(&data, offset)?, Limits { line, head, fields }) {
        Ok(Some((range, end))) => Ok((part(&data, offset, range)?, offset + end).encode(env)),
        Ok(None) => Ok(atoms::more().encode(env)),
        Err(refusal) => Ok(refused(env, refusal)),
    }
}

/// Adds the fields of a handler. Returns the first that may not be sent, if any. The list is
/// checked first, because the iterator panics for an improper list.
fn add_fields<'a>(
    fields: Term<'a>,
    mut add: impl FnMut(&[u8], &[u8]) -> Result<(), Forbidden>,
) -> NifResult<Option<Term<'a>>> {
    fields.list_length()?;
    for (name, value) in fields.decode::<Vec<(Binary, Term)>>()? {
        let bytes = Binary::from_term(value).or_else(|_| Binary::from_iolist(value))?;
        if add(&name, &bytes).is_err() {
            return Ok(Some((atoms::forbidden(), name, bytes).encode(fields.get_env())));
        }
    }
    Ok(None)
}

#[rustler::nif]
fn response<'a>(
    env: Env<'a>,
    status: u16,
    fields: Term<'a>,
    flags: u32,
    length: u64,
    body: Binary<'a>,
) -> NifResult<Term<'a>> {
    with_scratch(|out| {
        let mut head = response::Head::new(out, status);
        if let Some(forbidden) = add_fields(fields, |name, value| head.field(name, value))? {
            return Ok(forbidden);
        }
        let after = if head.end(flags, length) { atoms::close() } else { atoms::keep() };
        out.extend_from_slice(&body);
        Ok((after, binary(env, out)).encode(env))
    })
}

#[rustler::nif]
fn trailer_fields<'a>(env: Env<'a>, fields: Term<'a>) -> NifResult<Term<'a>> {
    with_scratch(|out| match add_fields(fields, |name, value| response::trailer(out, name, value))? {
        Some(forbidden) => Ok(forbidden),
        None => Ok(binary(env, out)),
    })
}

#[rustler::nif]
fn format_date(env: Env, second: u64) -> Term {
    binary(env, &date::format(second))
}

#[rustler::nif]
fn parse_date<'a>(env: Env<'a>, text: Binary<'a>) -> Term<'a> {
    date::parse(&text).map_or_else(|| undefined().encode(env), |second| second.encode(env))
}

/// Returns the media type for a file extension, from the table of `mime_guess`.
#[rustler::nif]
fn media_type<'a>(env: Env<'a>, extension: Binary<'a>) -> Term<'a> {
    let known = std::str::from_utf8(&extension).ok().and_then(|text| mime_guess::from_ext(text).first_raw());
    known.map_or_else(|| undefined().encode(env), |name| binary(env, name.as_bytes()))
}

/// A request as returned by `weir_http_request:parts/1`: method, path, query, HTTP/1.1, fields.
type Parts<'a> = (Binary<'a>, Binary<'a>, Term<'a>, bool, Binary<'a>);

fn unless_undefined<'a, T: rustler::Decoder<'a>>(term: Term<'a>) -> NifResult<Option<T>> {
    if term.decode::<Atom>().is_ok_and(|atom| atom == undefined()) { Ok(None) } else { term.decode().map(Some) }
}

#[rustler::nif]
fn log_line<'a>(
    env: Env<'a>,
    is_json: bool,
    peer: Term<'a>,
    request: Term<'a>,
    (status, bytes, microseconds): (u16, u64, u64),
    id: Term<'a>,
) -> NifResult<Term<'a>> {
    let path;
    let peer = match get_tuple(peer) {
        Ok(pair) if pair.len() == 2 => match address(pair[0]) {
            Some(address) => Peer::Address(address),
            None => {
                path = pair[1].decode::<Binary>()?;
                Peer::Path(&path)
            }
        },
        _ => Peer::Unknown,
    };
    let parts = unless_undefined::<Parts>(request)?;
    let query = parts.as_ref().map(|parts| unless_undefined::<Binary>(parts.2)).transpose()?.flatten();
    let request = parts.as_ref().map(|(method, path, _, is_1_1, fields)| Request {
        method,
        path,
        query: query.as_deref(),
        is_1_1: *is_1_1,
        fields,
    });
    let id = unless_undefined::<Binary>(id)?;
    let entry = Entry { peer, request, status, bytes, microseconds, id: id.as_deref() };
    Ok(with_scratch(|out| {
        match is_json {
            true => log::json(out, &entry),
            false => log::combined(out, &entry),
        }
        binary(env, out)
    }))
}

fn address(term: Term) -> Option<IpAddr> {
    let numbers =
        get_tuple(term).ok()?.iter().map(|number| number.decode::<u16>()).collect::<NifResult<Vec<_>>>().ok()?;
    match <[u16; 8]>::try_from(numbers) {
        Ok(segments) => Some(segments.into()),
        Err(bytes) => {
            let bytes: Vec<u8> = bytes.into_iter().map(u8::try_from).collect::<Result<_, _>>().ok()?;
            <[u8; 4]>::try_from(bytes).ok().map(IpAddr::from)
        }
    }
}
