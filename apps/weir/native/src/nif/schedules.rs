//! A tracer of the VM that sends no message: it is asked whether an event is to be told, and notes the time instead.
//!
//! See `erl_tracer`: the VM calls the functions of the names it knows, in the thread of the scheduler and before the event. They
//! are asked for millions of events a second.

use std::cell::Cell;

use rustler::{Atom, Encoder, Env, Error, NifResult, Term};

use super::failed;
use crate::kernel::clock::Nanos;
use crate::kernel::scheduler;
use crate::term::atoms;
use crate::value::schedules::Schedules;
use crate::value::shared::Shared;

pub static SCHEDULES: Shared<Schedules> = Shared::new(Schedules::new());

/// A measurement is as long at most.
const LONGEST_MS: u64 = 120_000;

/// A scheduler that begins nothing for longer has slept, as sch.stp had it in 2013: that is no time of a schedule.
const SLEPT_NS: u64 = 10_000_000;

/// What a scheduler's thread does.
#[derive(Clone, Copy)]
struct Turn {
    /// The number of the measurement that this is about.
    session: u32,
    /// When a process began to run, or the last one ended to.
    since: Option<Nanos>,
    runs: bool,
}

thread_local! {
    static TURN: Cell<Turn> = const { Cell::new(Turn { session: 0, since: None, runs: false }) };
}

/// The number of a process of this VM, which is an immediate term. Of any other term it is a number as well, that says nothing.
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
