//! The boundary: the functions of the Erlang module `weir_nif`, which documents each of them.
//!
//! A wrong argument is a badarg, a closed socket a tagged error, and every call is bounded in time
//! (`value::work`). The functions make no decisions: they find the socket, lock it and call a
//! lower layer. May use everything.

/// Finds the socket, or returns `{error, $closed}` from the calling function.
macro_rules! socket {
    ($env:expr, $handle:expr, $closed:expr) => {
        match find($handle, $closed)? {
            Ok(socket) => socket,
            Err(reason) => return Ok(failed($env, reason)),
        }
    };
}

mod file;
mod group;
mod inspection;
mod library;
mod listener;
mod opening;
mod ownership;
mod pollsets;
mod reactor;
mod relay;
mod schedules;
mod sendfile;
mod telling;
mod traffic;

use rustix::io::Errno;
use rustler::{Decoder, Encoder, Env, Error, NifResult, Term};

use crate::pollset;
use crate::socket::table;
use crate::socket::{Reason, Socket};
use crate::term::atoms;
use crate::term::errno;
use crate::value::handle::Handle;
use crate::value::slots::{self, Lookup, Occupant};
use crate::verb::input::Asked;

/// The number of an existing pollset.
struct PollsetIndex(u16);

impl<'a> Decoder<'a> for PollsetIndex {
    fn decode(term: Term<'a>) -> NifResult<PollsetIndex> {
        let index = term.decode()?;
        pollset::exists(index).then_some(PollsetIndex(index)).ok_or(Error::BadArg)
    }
}

type Locked = slots::Locked<'static, Socket>;

/// Locks the socket of a handle. Returns `closed` if it is closed; badarg if it never existed. A
/// socket without an owner counts as closed, even if some of its output is still being sent.
fn find(handle: Handle, closed: Reason) -> NifResult<Result<Locked, Reason>> {
    Ok(open(table::lookup(handle))?.filter(|socket| !socket.lingering && !socket.broken).ok_or(closed))
}

/// Locks the occupant of a handle. `None` if it is closed; badarg if it never existed.
fn open<T: Occupant>(lookup: Lookup<T>) -> NifResult<Option<slots::Locked<T>>> {
    match lookup {
        Lookup::Open(occupant) => Ok(Some(occupant)),
        Lookup::Gone => Ok(None),
        Lookup::Never => Err(Error::BadArg),
    }
}

/// Decodes a list. Badarg if it is no list or an improper one, which the decoder of `Vec` does not
/// check.
fn proper_list(list: Term) -> NifResult<Vec<Term>> {
    list.list_length()?;
    list.decode()
}

fn failed(env: Env, reason: impl Encoder) -> Term {
    (atoms::error(), reason).encode(env)
}

fn posix(env: Env, errno: Errno) -> Term {
    failed(env, errno::atom(env, errno))
}

fn done<T: Encoder>(env: Env, result: rustix::io::Result<T>) -> Term {
    match result {
        Ok(value) => (atoms::ok(), value).encode(env),
        Err(errno) => posix(env, errno),
    }
}

/// Encodes the result of a request for messages: `ok` or `{settle, Told}`.
fn asked(env: Env, result: Asked) -> Term {
    match result {
        Asked::Nothing => atoms::ok().encode(env),
        Asked::Settle(told) => (atoms::settle(), told).encode(env),
    }
}

fn plain(env: Env, result: rustix::io::Result<()>) -> Term {
    match result {
        Ok(()) => atoms::ok().encode(env),
        Err(errno) => posix(env, errno),
    }
}
