//! Gates of listeners, for the processes of the listener and of its connections.

use std::ffi::CStr;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use rustix::io::Errno;
use rustler::{Atom, Decoder, Encoder, Env, Error, LocalPid, NifResult, Term};

use super::{failed, find, plain, posix, proper_list};
use crate::listener::gate::{Gate, Settings};
use crate::pollset;
use crate::relay;
use crate::socket::table;
use crate::term::atoms;
use crate::term::resource::{Kind, Resource, ResourceArc};
use crate::value::admission::{Admission, Prefix, Rules};
use crate::value::handle::Handle;
use crate::value::shared::Shared;
use crate::verb::accept;

/// What Erlang holds of a gate.
pub struct GateReference(Arc<Gate>);

pub static GATE: Shared<Kind> = Shared::new(Kind::new());

impl Resource for GateReference {
    const NAME: &'static CStr = c"gate";

    fn kind() -> &'static Shared<Kind> {
        &GATE
    }
}

type GateTerm = ResourceArc<GateReference>;

/// A limit: nothing for `infinity`.
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

/// An intake that the gate has, by its number from one.
fn intake(gate: &GateTerm, number: usize) -> NifResult<usize> {
    let intake = number.wrapping_sub(1);
    (intake < gate.0.intakes()).then_some(intake).ok_or(Error::BadArg)
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
            admission: Admission::new(rules, rate, per_address, Instant::now()),
        })
    }
}

#[rustler::nif]
fn gate_new<'a>(env: Env<'a>, schedulers: u16, settings: Settings) -> NifResult<Term<'a>> {
    if schedulers == 0 || !(1..=schedulers).all(pollset::exists) {
        return Err(Error::BadArg);
    }
    Ok(ResourceArc::new(GateReference(Arc::new(Gate::new(settings, schedulers)))).encode(env))
}

#[rustler::nif]
fn gate_listen<'a>(env: Env<'a>, gate: GateTerm, number: Term<'a>, handle: Handle) -> NifResult<Term<'a>> {
    let intake = match number.decode::<Atom>() {
        Ok(atom) if atom == atoms::reactor() => None,
        _ => Some(intake(&gate, number.decode()?)?),
    };
    let mut socket = socket!(env, handle, atoms::closed());
    Ok(plain(env, accept::through_gate(env, &mut socket, Arc::clone(&gate.0), intake)))
}

#[rustler::nif]
fn gate_keep(env: Env, gate: GateTerm) -> Atom {
    gate.0.set_keeper(env.pid());
    gate.0.retry(env);
    atoms::ok()
}

#[rustler::nif]
fn gate_retry(env: Env, gate: GateTerm) -> Atom {
    gate.0.retry(env);
    atoms::ok()
}

#[rustler::nif]
fn gate_attend(env: Env, gate: GateTerm, number: usize) -> NifResult<usize> {
    Ok(gate.0.set_acceptor(intake(&gate, number)?, env.pid()))
}

#[rustler::nif]
fn gate_waiting(gate: GateTerm, number: usize) -> NifResult<usize> {
    Ok(gate.0.length(intake(&gate, number)?))
}

#[rustler::nif]
fn gate_take<'a>(env: Env<'a>, gate: GateTerm, number: usize) -> NifResult<Term<'a>> {
    give(env, &gate, number, env.pid())
}

#[rustler::nif]
fn gate_give<'a>(env: Env<'a>, gate: GateTerm, number: usize, pid: LocalPid) -> NifResult<Term<'a>> {
    give(env, &gate, number, pid)
}

fn give<'a>(env: Env<'a>, gate: &GateTerm, number: usize, pid: LocalPid) -> NifResult<Term<'a>> {
    Ok(match accept::take_arrival(env, &gate.0, intake(gate, number)?, pid) {
        Ok(Some(handle)) => (atoms::ok(), handle.raw()).encode(env),
        Ok(None) => atoms::empty().encode(env),
        Err(Errno::SRCH) => failed(env, atoms::noproc()),
        Err(errno) => posix(env, errno),
    })
}

#[rustler::nif]
fn gate_discard(env: Env, gate: GateTerm, number: usize) -> NifResult<Atom> {
    if let Some(arrival) = gate.0.pop(env, intake(&gate, number)?) {
        gate.0.discard(env, arrival);
    }
    Ok(atoms::ok())
}

#[rustler::nif]
fn gate_clear(env: Env, gate: GateTerm) -> Atom {
    gate.0.clear(env);
    atoms::ok()
}

#[rustler::nif]
fn gate_change(env: Env, gate: GateTerm, settings: Settings) -> Atom {
    gate.0.change(env, settings);
    atoms::ok()
}

#[rustler::nif]
fn gate_info<'a>(env: Env<'a>, gate: GateTerm) -> NifResult<Term<'a>> {
    let (gate, counts) = (&gate.0, &gate.0.counts);
    let max = match gate.max_connections() {
        u64::MAX => atoms::infinity().encode(env),
        max => max.encode(env),
    };
    let pairs = [
        (atoms::connections(), gate.connections().encode(env)),
        (atoms::max_connections(), max),
        (atoms::waiting(), gate.waiting().encode(env)),
        (atoms::accepted(), counts.accepted.load(Relaxed).encode(env)),
        (atoms::overload(), counts.overload.load(Relaxed).encode(env)),
        (atoms::denied(), counts.denied.load(Relaxed).encode(env)),
        (atoms::crowded(), counts.crowded.load(Relaxed).encode(env)),
        (atoms::full_pauses(), counts.full_pauses.load(Relaxed).encode(env)),
        (atoms::rate_pauses(), counts.rate_pauses.load(Relaxed).encode(env)),
    ];
    Term::map_from_pairs(env, &pairs)
}

#[rustler::nif]
fn gate_exempt<'a>(env: Env<'a>, handle: Handle) -> NifResult<Term<'a>> {
    let mut socket = socket!(env, handle, atoms::closed());
    if let Some(ticket) = &mut socket.ticket {
        ticket.exempt(env);
    }
    Ok(atoms::ok().encode(env))
}

#[rustler::nif]
fn gate_relays<'a>(env: Env<'a>, gate: GateTerm, chunk: usize) -> Term<'a> {
    match relay::of_gate(chunk, &gate.0) {
        Some(relays) => {
            let relays: Vec<_> = relays.into_iter().map(|(handle, process)| (handle.raw(), process)).collect();
            (atoms::ok(), relays).encode(env)
        }
        None => atoms::done().encode(env),
    }
}

#[rustler::nif]
fn gate_connections<'a>(env: Env<'a>, gate: GateTerm, chunk: usize) -> Term<'a> {
    let chosen = table::select(chunk, |socket| {
        let ticket = socket.ticket.as_ref().filter(|ticket| ticket.is_of(&gate.0))?;
        Some((socket.handle().raw(), ticket.process, socket.pollset))
    });
    match chosen {
        Some(connections) => (atoms::ok(), connections).encode(env),
        None => atoms::done().encode(env),
    }
}
