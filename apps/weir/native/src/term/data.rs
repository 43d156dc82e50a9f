//! Received bytes as terms, by the options `mode`, `header`, `packet` and `deliver`.

use std::ffi::CStr;
use std::sync::OnceLock;

use rustler::types::tuple::make_tuple;
use rustler::{Atom, Encoder, Env, NewBinary, OwnedBinary, Term, sys};

use crate::term::atoms;
use crate::term::resource::{Kind as ResourceKind, Resource, ResourceArc};
use crate::value::http::{self, Line, Name, Uri};
use crate::value::options::Options;
use crate::value::packet::{self, Packet};
use crate::value::shared::Shared;

/// From this size on, data becomes a binary without a copy: copying 64 MiB would exceed the time
/// of a call.
pub const LARGE: usize = 256 * 1024;

/// The bytes of such a binary, as a resource.
pub struct Bytes(Vec<u8>);

pub static BYTES: Shared<ResourceKind> = Shared::new(ResourceKind::new());

impl Resource for Bytes {
    const NAME: &'static CStr = c"bytes";

    fn kind() -> &'static Shared<ResourceKind> {
        &BYTES
    }
}

/// A packet as a term, and the kind of message that delivers it.
pub struct Data<'a> {
    pub term: Term<'a>,
    pub kind: Kind,
}

/// `{tcp, Socket, Term}`, `{http, Socket, Term}` or `{Socket, {data, Term}}`.
#[derive(Clone, Copy)]
pub enum Kind {
    Tcp,
    Http,
    Port,
}

/// Encodes a whole packet, including its header, as the options say. For HTTP, sets whether header
/// fields follow.
pub fn of_packet<'a>(env: Env<'a>, options: &Options, in_http_headers: &mut bool, bytes: &[u8]) -> Data<'a> {
    if options.packet.is_http() && !options.deliver_port {
        let binary = matches!(options.packet, Packet::HttpBin | Packet::HttphBin);
        let line = http::parse(bytes, in_http_headers);
        return Data { term: Strings { env, binary }.line(line, bytes), kind: Kind::Http };
    }
    let body = packet::body(options.packet, bytes);
    if options.deliver_port {
        // Always a list, since ports of the inet driver are opened without `binary`.
        return Data { term: list(env, body), kind: Kind::Port };
    }
    Data { term: plain(env, options, body), kind: Kind::Tcp }
}

/// Encodes a packet that owns its bytes, without a copy; its first `skip` bytes do not belong to
/// it.
pub fn of_large_packet<'a>(
    env: Env<'a>,
    options: &Options,
    in_http_headers: &mut bool,
    bytes: Vec<u8>,
    skip: usize,
) -> Data<'a> {
    if options.list || options.header != 0 || options.deliver_port || options.packet.is_http() {
        return of_packet(env, options, in_http_headers, &bytes[skip..]);
    }
    let body = packet::body(options.packet, &bytes[skip..]);
    let start = body.as_ptr() as usize - bytes.as_ptr() as usize;
    let range = start..start + body.len();
    let term = ResourceArc::new(Bytes(bytes)).make_binary(env, |bytes| &bytes.0[range]).to_term(env);
    Data { term, kind: Kind::Tcp }
}

/// Encodes a raw read that filled `binary`, for a socket with [`is_plain`] options.
pub fn of_binary(env: Env, binary: OwnedBinary) -> Data {
    Data { term: binary.release(env).to_term(env), kind: Kind::Tcp }
}

/// Whether data is delivered as the binary that it was read into.
pub fn is_plain(options: &Options) -> bool {
    options.packet == Packet::Raw && !options.list && options.header == 0 && !options.deliver_port
}

/// A binary, a list of bytes, or a list of `header` bytes with the rest as a binary tail.
fn plain<'a>(env: Env<'a>, options: &Options, bytes: &[u8]) -> Term<'a> {
    let header = options.header as usize;
    if options.list || header > bytes.len() {
        return list(env, bytes);
    }
    let (header, rest) = bytes.split_at(header);
    header.iter().rev().fold(binary(env, rest), |tail, byte| tail.list_prepend(*byte))
}

fn binary<'a>(env: Env<'a>, bytes: &[u8]) -> Term<'a> {
    let mut binary = NewBinary::new(env, bytes.len());
    binary.as_mut_slice().copy_from_slice(bytes);
    binary.into()
}

fn list<'a>(env: Env<'a>, bytes: &[u8]) -> Term<'a> {
    let encoding = sys::ErlNifCharEncoding::ERL_NIF_LATIN1;
    // SAFETY: the bytes are read and copied, and the term belongs to the environment it was made in.
    unsafe {
        let list = sys::enif_make_string_len(env.as_c_arg(), bytes.as_ptr().cast(), bytes.len(), encoding);
        Term::new(env, list)
    }
}

/// Encodes HTTP lines, with strings as binaries or lists.
struct Strings<'a> {
    env: Env<'a>,
    binary: bool,
}

impl<'a> Strings<'a> {
    /// Encodes a line like `erlang:decode_packet/3`: `{http_request, _, _, _}` and so on;
    /// `{http_error, Bytes}` if it is not HTTP.
    fn line(&self, line: Option<Line>, bytes: &[u8]) -> Term<'a> {
        let env = self.env;
        match line {
            Some(Line::Request { method, uri, version }) => {
                let method = self.name(&method, methods(env));
                (atoms::http_request(), method, self.uri(&uri), version).encode(env)
            }
            Some(Line::Response { version, status, reason }) => {
                (atoms::http_response(), version, status, self.string(reason)).encode(env)
            }
            Some(Line::Field { name, original, value }) => {
                let number = match name {
                    Name::Known(at) => at + 1,
                    Name::Other(_) => 0,
                };
                let name = self.name(&name, fields(env));
                (atoms::http_header(), number, name, self.string(original), self.string(value)).encode(env)
            }
            Some(Line::EndOfHeaders) => atoms::http_eoh().encode(env),
            None => (atoms::http_error(), self.string(bytes)).encode(env),
        }
    }

    fn string(&self, bytes: &[u8]) -> Term<'a> {
        if self.binary { binary(self.env, bytes) } else { list(self.env, bytes) }
    }

    fn name(&self, name: &Name, known: &[Atom]) -> Term<'a> {
        match name {
            Name::Known(at) => known[*at].encode(self.env),
            Name::Other(bytes) => self.string(bytes),
        }
    }

    fn uri(&self, uri: &Uri) -> Term<'a> {
        let env = self.env;
        match *uri {
            Uri::Star => atoms::star().encode(env),
            Uri::Path(path) => (atoms::abs_path(), self.string(path)).encode(env),
            Uri::Absolute { secure, host, port, path } => {
                let scheme = if secure { atoms::https() } else { atoms::http() };
                let port = port.map_or(atoms::undefined().encode(env), |port| port.encode(env));
                let parts = [atoms::absolute_uri().encode(env), scheme.encode(env), self.string(host), port];
                make_tuple(env, &[&parts[..], &[self.string(path)]].concat())
            }
            Uri::Scheme(scheme, rest) => (atoms::scheme(), self.string(scheme), self.string(rest)).encode(env),
            Uri::Other(bytes) => self.string(bytes),
        }
    }
}

/// The atoms of [`http::METHODS`], made once.
fn methods(env: Env) -> &'static [Atom] {
    static ATOMS: OnceLock<Vec<Atom>> = OnceLock::new();
    ATOMS.get_or_init(|| interned(env, &http::METHODS))
}

/// The atoms of [`http::FIELDS`], made once.
fn fields(env: Env) -> &'static [Atom] {
    static ATOMS: OnceLock<Vec<Atom>> = OnceLock::new();
    ATOMS.get_or_init(|| interned(env, &http::FIELDS))
}

fn interned(env: Env, names: &[&str]) -> Vec<Atom> {
    // The names are ASCII and short: making an atom cannot fail.
    names.iter().map(|name| Atom::from_str(env, name).unwrap_or_else(|_| atoms::undefined())).collect()
}
