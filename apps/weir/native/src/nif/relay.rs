//! Relays.

use std::ffi::CStr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::AddressFamily;
use rustler::{Atom, Binary, Decoder, Encoder, Env, Error, LocalPid, NifResult, Term};

use super::{PollsetIndex, failed, open, posix};
use crate::relay::start::{Connect, Refused, Terms, join, join_server};
use crate::relay::{self, Options, Splice};
use crate::socket::State;
use crate::socket::table;
use crate::term::address;
use crate::term::atoms;
use crate::term::errno;
use crate::term::resource::{Kind, Resource, ResourceArc};
use crate::value::active::Active;
use crate::value::handle::Handle;
use crate::value::latency::{Latency, Seen};
use crate::value::options::Options as SocketOptions;
use crate::value::shared::Shared;
use crate::value::slots::Lookup;
use crate::value::work::Work;
use crate::verb::connect;

/// Percent of a time slice for starting a relay: moving two descriptors to another target (up to
/// two system calls each), and forwarding the first data (a read and a write). Bytes are charged
/// on top.
const REGISTRATIONS: i32 = 6;

/// The Erlang reference to reply times that several relays measure together.
pub struct LatencyReference(Arc<Latency>);

pub static LATENCY: Shared<Kind> = Shared::new(Kind::new());

impl Resource for LatencyReference {
    const NAME: &'static CStr = c"latency";

    fn kind() -> &'static Shared<Kind> {
        &LATENCY
    }
}

type LatencyTerm = ResourceArc<LatencyReference>;

#[rustler::nif]
fn latency_new() -> LatencyTerm {
    ResourceArc::new(LatencyReference(Arc::new(Latency::new(true))))
}

#[rustler::nif]
fn latency_seen(latency: LatencyTerm) -> (u64, Vec<(u64, u64)>) {
    let Seen { sum, times } = latency.0.seen();
    (sum, times)
}

impl<'a> Decoder<'a> for Options {
    fn decode(term: Term<'a>) -> NifResult<Options> {
        type Tuple<'a> = (usize, usize, Atom, (Term<'a>, Term<'a>), bool, bool, Term<'a>);
        let (buffer, pipe, splice, (idle, half_close), detached, observed, latency): Tuple = term.decode()?;
        let splice = if splice == atoms::auto() {
            Splice::Auto
        } else if splice == atoms::r#true() {
            Splice::Always
        } else if splice == atoms::r#false() {
            Splice::Never
        } else {
            return Err(Error::BadArg);
        };
        if buffer == 0 || pipe == 0 {
            return Err(Error::BadArg);
        }
        let (idle_timeout, half_close_timeout) = (timeout(idle)?, timeout(half_close)?);
        let latency = match atoms::undefined() == latency {
            true => None,
            false => Some(Arc::clone(&latency.decode::<LatencyTerm>()?.0)),
        };
        Ok(Options { buffer, pipe, splice, idle_timeout, half_close_timeout, detached, observed, latency })
    }
}

fn timeout(term: Term) -> NifResult<Option<Duration>> {
    if atoms::infinity() == term {
        return Ok(None);
    }
    // 32 bits of milliseconds, like the timers of the VM.
    let milliseconds: u32 = term.decode()?;
    Ok(Some(Duration::from_millis(milliseconds.into())))
}

#[rustler::nif]
fn relay_start<'a>(
    env: Env<'a>,
    left: Handle,
    right: Handle,
    index: PollsetIndex,
    owner: LocalPid,
    prefix: Binary<'a>,
    options: Options,
) -> NifResult<Term<'a>> {
    if left == right {
        return Err(Error::BadArg);
    }
    let (mut first, mut second) = match table::lookup_both(left, right) {
        (Lookup::Never, _) | (_, Lookup::Never) => return Err(Error::BadArg),
        (Lookup::Gone, _) => return Ok(failed(env, (left.raw(), atoms::closed()))),
        (_, Lookup::Gone) => return Ok(failed(env, (right.raw(), atoms::closed()))),
        (Lookup::Open(first), Lookup::Open(second)) => (first, second),
    };
    let mut work = Work::of_caller();
    work.moved(prefix.len());
    let terms = Terms { pollset: index.0, owner, prefix: &prefix, options };
    let joined = join(env, (&mut first, &mut second), terms, &mut work);
    rustler::schedule::consume_timeslice(env, REGISTRATIONS + work.percent());
    Ok(match joined {
        Ok(handle) => (atoms::ok(), handle.raw()).encode(env),
        Err(refused) => refusal(env, refused),
    })
}

fn refusal(env: Env, refused: Refused) -> Term {
    match refused {
        Refused::Socket(handle, reason) => failed(env, (handle.raw(), reason)),
        Refused::Server(errno) => failed(env, (atoms::connect(), errno::atom(env, errno))),
        Refused::Failed(errno) => posix(env, errno),
    }
}

/// Percent of a time slice for opening a connection, on top of the relay.
const CONNECTION: i32 = 6;

#[rustler::nif]
fn relay_connect<'a>(
    env: Env<'a>,
    handle: Handle,
    address: Term<'a>,
    index: PollsetIndex,
    owner: LocalPid,
    prefix: Binary<'a>,
    options: Options,
) -> NifResult<Term<'a>> {
    let server = address::decode(address)?;
    let Some(mut left) = open(table::lookup(handle))? else {
        return Ok(failed(env, (handle.raw(), atoms::closed())));
    };
    let mut work = Work::of_caller();
    work.moved(prefix.len());
    let terms = Terms { pollset: index.0, owner, prefix: &prefix, options };
    let module = left.module;
    let local = server.as_ref().is_ok_and(|server| server.address_family() == AddressFamily::UNIX);
    let joined =
        server.map_err(Refused::Server).and_then(|server| join_server(env, &mut left, &server, terms, &mut work));
    rustler::schedule::consume_timeslice(env, CONNECTION + REGISTRATIONS + work.percent());
    drop(left);
    Ok(match joined {
        Ok(Connect::Relay(handle)) => (atoms::ok(), handle.raw()).encode(env),
        Ok(Connect::Wait(fd)) => wait_for(env, fd, (module, local), index.0),
        Err(refused) => refusal(env, refused),
    })
}

/// Makes a connection attempt that is in progress a socket of the calling process, which waits for
/// it.
fn wait_for(env: Env, fd: OwnedFd, (module, local): (Option<Atom>, bool), pollset: u16) -> Term {
    let (Some(module), Some(mut socket)) = (module, table::allocate()) else {
        return refusal(env, Refused::Server(Errno::MFILE));
    };
    let options = SocketOptions { active: Active::Passive, local, ..SocketOptions::default() };
    // The calling process is alive, since it calls.
    let Ok(handle) = socket.open(env, fd, State::Connecting, (module, pollset, options), env.pid()) else {
        return refusal(env, Refused::Server(Errno::SRCH));
    };
    if let Err(errno) = connect::expect(&mut socket) {
        socket.release(env);
        return refusal(env, Refused::Server(errno));
    }
    (atoms::wait(), handle.raw(), connect::await_connection(env, &mut socket)).encode(env)
}

#[rustler::nif]
fn relay_stop(env: Env, handle: Handle) -> NifResult<Atom> {
    if let Some(mut relay) = open(relay::lookup(handle))? {
        relay.stop(env);
    }
    Ok(atoms::ok())
}

#[rustler::nif]
fn relay_info<'a>(env: Env<'a>, handle: Handle) -> NifResult<Term<'a>> {
    let described = open(relay::lookup(handle))?.and_then(|relay| relay.describe(env));
    Ok(match described {
        Some((owner, pollset, statistics)) => (atoms::ok(), (owner, pollset, statistics)).encode(env),
        None => failed(env, atoms::closed()),
    })
}

#[rustler::nif]
fn relay_peers<'a>(env: Env<'a>, handle: Handle) -> NifResult<Term<'a>> {
    let peers = open(relay::lookup(handle))?.and_then(|relay| relay.peers(env));
    Ok(match peers {
        Some(peers) => (atoms::ok(), peers).encode(env),
        None => failed(env, atoms::closed()),
    })
}

#[rustler::nif]
fn relay_expire<'a>(env: Env<'a>, handle: Handle) -> NifResult<Term<'a>> {
    let wait = open(relay::lookup(handle))?.and_then(|mut relay| relay.expire(env));
    Ok(wait.map_or_else(|| atoms::done().encode(env), |milliseconds| milliseconds.encode(env)))
}

#[rustler::nif]
fn relays_due<'a>(env: Env<'a>, chunk: usize) -> Term<'a> {
    match relay::due(chunk) {
        None => atoms::done().encode(env),
        Some(due) => {
            let due: Vec<(u64, u64)> = due.into_iter().map(|(handle, wait)| (handle.raw(), wait)).collect();
            (atoms::ok(), due).encode(env)
        }
    }
}

#[rustler::nif]
fn relay_count() -> usize {
    relay::RELAYS.occupied()
}

#[rustler::nif]
fn relays<'a>(env: Env<'a>, chunk: usize) -> Term<'a> {
    match relay::handles(chunk) {
        None => atoms::done().encode(env),
        Some(handles) => {
            let handles: Vec<u64> = handles.into_iter().map(Handle::raw).collect();
            (atoms::ok(), handles).encode(env)
        }
    }
}
