//! Listeners: limits, queues, and the connections that came through them.

use std::ffi::CStr;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use rustix::io::Errno;
use rustler::{Atom, Decoder, Encoder, Env, Error, LocalPid, NifResult, Term};

use super::{failed, find, plain, posix, proper_list};
use crate::kernel::sockopt;
use crate::listener::accept_queue::{Missed, Taker};
use crate::listener::{Listener, Settings};
use crate::pollset;
use crate::relay;
use crate::socket::table;
use crate::term::atoms;
use crate::term::resource::{Kind, Resource, ResourceArc};
use crate::value::admission::{Admission, Prefix, Rules};
use crate::value::handle::Handle;
use crate::value::latency::Seen;
use crate::value::shared::Shared;
use crate::verb::accept;
use crate::verb::listen;

/// The Erlang reference to a listener.
pub struct ListenerReference(Arc<Listener>);

pub static LISTENER: Shared<Kind> = Shared::new(Kind::new());

impl Resource for ListenerReference {
    const NAME: &'static CStr = c"listener";

    fn kind() -> &'static Shared<Kind> {
        &LISTENER
    }
}

type ListenerTerm = ResourceArc<ListenerReference>;

/// Decodes a limit: `None` for `infinity`.
fn limit(term: Term) -> NifResult<Option<u32>> {
    match term.decode::<Atom>() {
        Ok(atom) if atom == atoms::infinity() => Ok(None),
        _ => term.decode().map(Some),
    }
}

fn prefixes(term: Term) -> NifResult<Vec<Prefix>> {
    proper_list(term)?.into_iter().map(|entry| prefix(entry)?.ok_or(Error::BadArg)).collect()
}

fn prefix(term: Term) -> NifResult<Option<Prefix>> {
    let (ip, length): (Term, u8) = term.decode()?;
    if let Ok((a, b, c, d)) = ip.decode::<(u8, u8, u8, u8)>() {
        return Ok(Prefix::of_v4(Ipv4Addr::new(a, b, c, d), length));
    }
    let parts = rustler::types::tuple::get_tuple(ip)?;
    let parts: Vec<u16> = parts.into_iter().map(|part| part.decode()).collect::<NifResult<_>>()?;
    let parts: [u16; 8] = parts.try_into().map_err(|_| Error::BadArg)?;
    Ok(Prefix::of_v6(Ipv6Addr::from(parts), length))
}

/// Index of a listener's queue; Erlang numbers queues from 1.
fn queue(listener: &ListenerTerm, number: usize) -> NifResult<usize> {
    let queue = number.wrapping_sub(1);
    (queue < listener.0.queues()).then_some(queue).ok_or(Error::BadArg)
}

impl<'a> Decoder<'a> for Settings {
    fn decode(limits: Term<'a>) -> NifResult<Settings> {
        let of = |name: Atom| limits.map_get(name);
        let rules = Rules::new(&prefixes(of(atoms::allow())?)?, &prefixes(of(atoms::deny())?)?);
        let (rate, per_address) = (limit(of(atoms::max_rate())?)?, limit(of(atoms::per_address())?)?);
        Ok(Settings {
            max_connections: limit(of(atoms::max_connections())?)?.map_or(u64::MAX, u64::from),
            reset: of(atoms::overload())?.decode::<Atom>()? == atoms::reset(),
            least_loaded: of(atoms::placement())?.decode::<Atom>()? == atoms::least_loaded(),
            bind: of(atoms::affinity())?.decode::<Atom>()? == atoms::bound(),
            measure: of(atoms::measure())?.decode()?,
            admission: Admission::new(rules, rate, per_address, Instant::now()),
        })
    }
}

#[rustler::nif]
fn listener_new<'a>(env: Env<'a>, schedulers: u16, settings: Settings) -> NifResult<Term<'a>> {
    if schedulers == 0 || !(1..=schedulers).all(pollset::exists) {
        return Err(Error::BadArg);
    }
    Ok(ResourceArc::new(ListenerReference(Arc::new(Listener::new(settings, schedulers)))).encode(env))
}

#[rustler::nif]
fn listener_add_socket<'a>(
    env: Env<'a>,
    listener: ListenerTerm,
    number: Term<'a>,
    handle: Handle,
) -> NifResult<Term<'a>> {
    let queue = match number.decode::<Atom>() {
        Ok(atom) if atom == atoms::reactor() => None,
        _ => Some(queue(&listener, number.decode()?)?),
    };
    let mut socket = socket!(env, handle, atoms::closed());
    Ok(plain(env, listen::attach(env, &mut socket, Arc::clone(&listener.0), queue)))
}

#[rustler::nif]
fn listener_own(env: Env, listener: ListenerTerm) -> Atom {
    listener.0.set_owner(env.pid());
    listener.0.retry(env);
    atoms::ok()
}

#[rustler::nif]
fn listener_retry(env: Env, listener: ListenerTerm) -> Atom {
    listener.0.retry(env);
    atoms::ok()
}

#[rustler::nif]
fn listener_set_acceptor(listener: ListenerTerm, number: usize, acceptor: LocalPid) -> NifResult<usize> {
    Ok(listener.0.set_acceptor(queue(&listener, number)?, acceptor))
}

#[rustler::nif]
fn listener_waiting(listener: ListenerTerm, number: usize) -> NifResult<usize> {
    Ok(listener.0.length(queue(&listener, number)?))
}

#[rustler::nif]
fn listener_set_version(listener: ListenerTerm, version: u64) -> Atom {
    listener.0.set_version(version);
    atoms::ok()
}

#[rustler::nif]
fn listener_accept<'a>(env: Env<'a>, listener: ListenerTerm, number: usize, version: u64) -> NifResult<Term<'a>> {
    give(env, &listener, number, env.pid(), (version, Taker::Caller))
}

#[rustler::nif]
fn listener_accept_for<'a>(
    env: Env<'a>,
    listener: ListenerTerm,
    number: usize,
    pid: LocalPid,
    version: u64,
) -> NifResult<Term<'a>> {
    give(env, &listener, number, pid, (version, Taker::ChildOfAcceptor))
}

fn give<'a>(
    env: Env<'a>,
    listener: &ListenerTerm,
    number: usize,
    pid: LocalPid,
    how: (u64, Taker),
) -> NifResult<Term<'a>> {
    Ok(match accept::take_arrival(env, &listener.0, queue(listener, number)?, pid, how) {
        Ok(Ok(handle)) => (atoms::ok(), handle.raw()).encode(env),
        Ok(Err(Missed::Nothing)) => atoms::empty().encode(env),
        Ok(Err(Missed::Outdated)) => atoms::outdated().encode(env),
        Err(Errno::SRCH) => failed(env, atoms::noproc()),
        Err(errno) => posix(env, errno),
    })
}

#[rustler::nif]
fn listener_discard(env: Env, listener: ListenerTerm, number: usize) -> NifResult<Atom> {
    listener.0.discard_next(env, queue(&listener, number)?);
    Ok(atoms::ok())
}

#[rustler::nif]
fn listener_clear(env: Env, listener: ListenerTerm) -> Atom {
    listener.0.clear(env);
    atoms::ok()
}

#[rustler::nif]
fn listener_set_limits(env: Env, listener: ListenerTerm, settings: Settings) -> Atom {
    listener.0.change(env, settings);
    atoms::ok()
}

#[rustler::nif]
fn listener_info<'a>(env: Env<'a>, listener: ListenerTerm) -> NifResult<Term<'a>> {
    let (listener, counts) = (&listener.0, &listener.0.counts);
    let max = match listener.max_connections() {
        u64::MAX => atoms::infinity().encode(env),
        max => max.encode(env),
    };
    let (replies, reply_ns) = listener.latency.totals();
    let pairs = [
        (atoms::connections(), listener.connections().encode(env)),
        (atoms::max_connections(), max),
        (atoms::waiting(), listener.waiting().encode(env)),
        (atoms::accepted(), listener.accepted().encode(env)),
        (atoms::overload(), counts.overload.load(Relaxed).encode(env)),
        (atoms::denied(), counts.denied.load(Relaxed).encode(env)),
        (atoms::crowded(), counts.crowded.load(Relaxed).encode(env)),
        (atoms::full_pauses(), counts.full_pauses.load(Relaxed).encode(env)),
        (atoms::rate_pauses(), counts.rate_pauses.load(Relaxed).encode(env)),
        (atoms::measured(), listener.latency.is_on().encode(env)),
        (atoms::replies(), replies.encode(env)),
        (atoms::reply_ns(), reply_ns.encode(env)),
    ];
    let mut info = Term::map_from_pairs(env, &pairs)?;
    if let Some((waiting, limit)) = backlog(listener) {
        info = info.map_put(atoms::backlog(), waiting)?.map_put(atoms::max_backlog(), limit)?;
    }
    Ok(info)
}

/// The sum of the kernel's backlogs and of their limits; `None` without a listening TCP socket.
fn backlog(listener: &Listener) -> Option<(u32, u32)> {
    let backlogs = listener.listening().into_iter().filter_map(|handle| {
        let socket = table::find(handle)?;
        sockopt::backlog(socket.fd.as_ref()?.as_fd()).ok()
    });
    backlogs.reduce(|(waiting, limit), (more, further)| (waiting + more, limit + further))
}

#[rustler::nif]
fn listener_latency(listener: ListenerTerm) -> (u64, Vec<(u64, u64)>) {
    let Seen { sum, times } = listener.0.latency.seen();
    (sum, times)
}

#[rustler::nif]
fn listener_exempt<'a>(env: Env<'a>, handle: Handle) -> NifResult<Term<'a>> {
    let mut socket = socket!(env, handle, atoms::closed());
    if let Some(permit) = &mut socket.permit {
        permit.exempt(env);
    }
    Ok(atoms::ok().encode(env))
}

#[rustler::nif]
fn listener_relays<'a>(env: Env<'a>, listener: ListenerTerm, chunk: usize) -> Term<'a> {
    match relay::of_listener(chunk, &listener.0) {
        Some(relays) => {
            let relays: Vec<_> = relays.into_iter().map(|(handle, process)| (handle.raw(), process)).collect();
            (atoms::ok(), relays).encode(env)
        }
        None => atoms::done().encode(env),
    }
}

#[rustler::nif]
fn listener_connections<'a>(env: Env<'a>, listener: ListenerTerm, chunk: usize) -> Term<'a> {
    let chosen = table::select(chunk, |socket| {
        let permit = socket.permit.as_ref().filter(|permit| permit.is_of(&listener.0))?;
        Some((socket.handle().raw(), permit.process, socket.pollset))
    });
    match chosen {
        Some(connections) => (atoms::ok(), connections).encode(env),
        None => atoms::done().encode(env),
    }
}
