//! The boundary: every function of the Erlang module `weir_nif`, where each is documented.
//!
//! A wrong argument is a badarg, a closed socket a tagged error; every call is bounded (`value::work`). Nothing here
//! decides: the functions find the socket, lock it and hand it on. May use everything.

/// Finds the socket or returns `{error, $closed}` from the function.
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

/// The number of a pollset that there is.
struct PollsetIndex(u16);

impl<'a> Decoder<'a> for PollsetIndex {
    fn decode(term: Term<'a>) -> NifResult<PollsetIndex> {
        let index = term.decode()?;
        pollset::exists(index).then_some(PollsetIndex(index)).ok_or(Error::BadArg)
    }
}

type Locked = slots::Locked<'static, Socket>;

/// The socket of a handle, or what to say if it is closed; badarg if there never was one. A socket that nobody owns any
/// more is closed to all, even if some of its output is still being sent.
fn find(handle: Handle, closed: Reason) -> NifResult<Result<Locked, Reason>> {
    Ok(open(table::lookup(handle))?.filter(|socket| !socket.lingering && !socket.broken).ok_or(closed))
}

/// What a handle names, locked; nothing if it is gone, badarg if there never was any.
fn open<T: Occupant>(lookup: Lookup<T>) -> NifResult<Option<slots::Locked<T>>> {
    match lookup {
        Lookup::Open(occupant) => Ok(Some(occupant)),
        Lookup::Gone => Ok(None),
        Lookup::Never => Err(Error::BadArg),
    }
}

/// The elements of a list; badarg for what is no list or an improper one, which the decoder of vectors does not bear.
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

/// The result of a call that has asked for messages: `ok` or `{settle, Told}`.
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
