//! Pollsets, as their pollers use them.

use std::sync::atomic::Ordering::Relaxed;

use rustler::{Atom, Encoder, Env, Error, NifResult, Term};

use super::{PollsetIndex, done, plain};
use crate::poll;
use crate::pollset;
use crate::term::atoms;
use crate::value::panics;
use crate::value::ready::Sleep;

#[rustler::nif]
fn make<'a>(env: Env<'a>, index: usize) -> NifResult<Term<'a>> {
    if index >= pollset::SCHEDULERS {
        return Err(Error::BadArg);
    }
    Ok(plain(env, poll::thread::start(index as u16)))
}

#[rustler::nif]
fn set_online(count: u16) -> NifResult<Atom> {
    if count == 0 || !pollset::exists(count) {
        return Err(Error::BadArg);
    }
    pollset::online::set(count);
    Ok(atoms::ok())
}

#[rustler::nif]
fn pollers() -> Vec<rustler::LocalPid> {
    pollset::pollers()
}

#[rustler::nif]
fn claim<'a>(env: Env<'a>, index: usize) -> NifResult<Term<'a>> {
    if index >= pollset::SCHEDULERS {
        return Err(Error::BadArg);
    }
    Ok(done(env, poll::thread::start(index as u16).and_then(|()| pollset::claim(env, index as u16))))
}

#[rustler::nif]
fn acquire<'a>(env: Env<'a>) -> Term<'a> {
    // The thread of the first scheduler wakes processes that have no other home.
    done(env, poll::thread::start(1).and_then(|()| pollset::private::acquire(env)))
}

#[rustler::nif]
fn poll<'a>(env: Env<'a>, index: PollsetIndex, token: u32) -> Term<'a> {
    match poll::poll(env, index.0, token) {
        Some(polled) => polled.encode(env),
        None => atoms::stale().encode(env),
    }
}

#[rustler::nif]
fn sleep(index: PollsetIndex, token: u32, bulk: bool) -> Atom {
    match pollset::sleeper::sleep(index.0, token, bulk) {
        Sleep::Asleep => atoms::asleep(),
        Sleep::Busy => atoms::busy(),
        Sleep::Stale => atoms::stale(),
    }
}

#[rustler::nif]
fn panics() -> (u64, String) {
    panics::so_far()
}

#[rustler::nif]
fn counters<'a>(env: Env<'a>, index: PollsetIndex) -> NifResult<Term<'a>> {
    let counters = pollset::counters(index.0);
    let histogram: Vec<u64> = counters.events_log2.iter().map(|bucket| bucket.load(Relaxed)).collect();
    let numbers = [
        (atoms::polls(), &counters.polls),
        (atoms::empty_polls(), &counters.empty_polls),
        (atoms::events(), &counters.events),
        (atoms::events_max(), &counters.events_max),
        (atoms::sleeps(), &counters.sleeps),
        (atoms::asleep_ns(), &counters.asleep_ns),
        (atoms::gathers(), &counters.gathers),
        (atoms::wakes_by_thread(), &counters.wakes_by_thread),
        (atoms::wakes_by_process(), &counters.wakes_by_process),
        (atoms::polling_ns(), &counters.polling_ns),
        (atoms::between_ns(), &counters.between_ns),
        (atoms::reads(), &counters.reads),
        (atoms::read_bytes(), &counters.read_bytes),
        (atoms::writes(), &counters.writes),
        (atoms::written_bytes(), &counters.written_bytes),
        (atoms::short_writes(), &counters.short_writes),
        (atoms::file_waits(), &counters.file_waits),
        (atoms::files_cut(), &counters.files_cut),
        (atoms::accepts(), &counters.accepts),
        (atoms::asked_away(), &counters.asked_away),
        (atoms::faults(), &counters.faults),
        (atoms::moved_in(), &counters.moved_in),
        (atoms::moved_out(), &counters.moved_out),
    ];
    let mut pairs: Vec<(Term, Term)> =
        numbers.iter().map(|(name, counter)| (name.encode(env), counter.load(Relaxed).encode(env))).collect();
    pairs.push((atoms::events_min().encode(env), counters.events_min().encode(env)));
    pairs.push((atoms::events_log2().encode(env), histogram.encode(env)));
    pairs.push((atoms::contended().encode(env), pollset::get(index.0).ready.contended().encode(env)));
    pairs.push((atoms::sockets().encode(env), counters.sockets.load(Relaxed).encode(env)));
    Term::map_from_pairs(env, &pairs)
}
