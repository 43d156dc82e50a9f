//! A tracer that sends no messages: when the VM asks whether to trace an event, it records the
//! time and answers no.
//!
//! See `erl_tracer`. The VM finds the functions by their names and calls them in the thread of the
//! scheduler, before the event. There can be millions of calls per second.

use std::cell::Cell;

use rustler::{Atom, Encoder, Env, Error, NifResult, Term};

use super::failed;
use crate::kernel::clock::Nanos;
use crate::kernel::scheduler;
use crate::term::atoms;
use crate::value::schedules::Schedules;
use crate::value::shared::Shared;

pub static SCHEDULES: Shared<Schedules> = Shared::new(Schedules::new());

/// Maximum duration of a measurement, in milliseconds.
const LONGEST_MS: u64 = 120_000;

/// A scheduler that starts no process for longer than this has slept; the gap is not counted as
/// scheduling delay. The limit is that of sch.stp (2013).
const SLEPT_NS: u64 = 10_000_000;

/// The last event in a scheduler's thread.
#[derive(Clone, Copy)]
struct Turn {
    /// The measurement that this belongs to.
    session: u32,
    /// When the last process started or stopped running.
    since: Option<Nanos>,
    runs: bool,
}

thread_local! {
    static TURN: Cell<Turn> = const { Cell::new(Turn { session: 0, since: None, runs: false }) };
}

/// The number of a local pid, which is an immediate term. For any other term the number means
/// nothing.
fn number(term: Term) -> u64 {
    // SAFETY: the type is a transparent wrapper of this integer.
    let number: usize = unsafe { std::mem::transmute(term.as_c_arg()) };
    number as u64
}

#[rustler::nif]
fn schedules_begin<'a>(env: Env<'a>, milliseconds: u64) -> NifResult<Term<'a>> {
    if milliseconds > LONGEST_MS {
        return Err(Error::BadArg);
    }
    let now = Nanos::now().nanoseconds();
    Ok(match SCHEDULES.begin(now, now + milliseconds * 1_000_000) {
        Some(session) => (atoms::ok(), session).encode(env),
        None => failed(env, atoms::busy()),
    })
}

#[rustler::nif]
fn schedules_end<'a>(env: Env<'a>, session: u32) -> Term<'a> {
    let Some(schedulers) = SCHEDULES.end(session) else {
        return failed(env, atoms::closed());
    };
    let schedulers: Vec<_> = schedulers
        .into_iter()
        .map(|(scheduler, turns)| {
            (scheduler, turns.between.counts().to_vec(), turns.running.counts().to_vec(), turns.migrations())
        })
        .collect();
    (atoms::ok(), schedulers).encode(env)
}

#[rustler::nif]
fn enabled(_tag: Term, session: u32, _tracee: Term) -> Atom {
    let goes_on = SCHEDULES.goes_on(session, Nanos::now().nanoseconds());
    if goes_on { atoms::discard() } else { atoms::remove() }
}

#[rustler::nif]
fn enabled_running_procs(tag: Atom, session: u32, tracee: Term) -> Atom {
    let now = Nanos::now();
    if !SCHEDULES.goes_on(session, now.nanoseconds()) {
        return atoms::remove();
    }
    if let Some(scheduler) = scheduler::current().map(usize::from)
        && let Some(turns) = SCHEDULES.turns(scheduler)
    {
        let begins = tag == atoms::r#in() || tag == atoms::in_exiting();
        if begins {
            SCHEDULES.runs(number(tracee), scheduler, turns);
        }
        let before = TURN.replace(Turn { session, since: Some(now), runs: begins });
        if let Some(since) = before.since
            && before.session == session
            && before.runs != begins
        {
            match now.nanoseconds_since(since) {
                took if before.runs => turns.running.count(took),
                took if took <= SLEPT_NS => turns.between.count(took),
                _ => {}
            }
        }
    }
    atoms::discard()
}

#[rustler::nif]
fn trace(_tag: Term, _session: Term, _tracee: Term, _term: Term, _options: Term) -> Atom {
    atoms::ok()
}
