//! The dispatch: takes ready targets from the kernel and from the ready list of a pollset, and
//! serves them.
//!
//! `visit` serves sockets, with the verbs or for a reactor; relays and groups have their own
//! modules. `death` handles the death of owners. [`thread`] wakes pollers, and serves in their
//! place. May use everything but the boundary.

pub mod death;
pub mod thread;
mod visit;

use std::collections::VecDeque;
use std::mem::MaybeUninit;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use rustix::event::epoll::{Event, EventFlags};
use rustler::{Encoder, Env, NifResult, Term};

use self::visit::{note, prefetch, revisit, visit};
use crate::kernel::epoll::BATCH;
use crate::pollset::{self, Pollset};
use crate::reactor;
use crate::reactor::Batch;
use crate::relay;
use crate::socket::table;
use crate::term::atoms;
use crate::value::chaos;
use crate::value::counters::{Tally, add};
use crate::value::handle::{Handle, Target};
use crate::value::panics;
use crate::value::ready::Taken;
use crate::value::work::Work;
use crate::verb::group::delivery;

/// Minimum number of sockets that a poll asks the kernel for, in case the poll before had lost the
/// processor.
const FEWEST: usize = 64;

/// Result of a poll: number of sockets visited, and nanoseconds from the end of the last poll to
/// the start of this one.
pub struct Polled {
    pub events: usize,
    pub round_ns: u64,
    pub bulk: Bulk,
}

/// Whether a poll has visited only bulk streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bulk {
    No,
    /// Sockets that fill large reads, and splicing relays.
    Mixed,
    /// Splicing relays only.
    Relays,
}

/// Visits all ready sockets, those of the ready list and those that the kernel reports, within the
/// time limit of a call. The rest goes to the ready list. `None` if the caller is no longer the
/// poller.
pub fn poll(env: Env, index: u16, token: u32) -> Option<Polled> {
    let now = Instant::now();
    let mut work = Work::of_poll(now);
    // Reported sockets for which the poll has no time go over the ready list, which costs a second
    // lookup each. Sockets that are not asked for stay in the kernel.
    let fits = &pollset::get(index).fits;
    // A scheduler's pollset has no sockets of reactors.
    let polled = poll_into(env, index, token, (now, fits.load(Relaxed)), &mut work, &mut Batch::new(env))?;
    if let Some(visits) = work.fits(now) {
        fits.store(visits.clamp(FEWEST, BATCH), Relaxed);
    }
    Some(polled)
}

/// Minimum number of events per reactor call, in case it lost the processor during the writes.
const FEWEST_EVENTS: usize = 16;

/// Makes a reactor's writes, then takes the next batch. `None` if the caller does not poll the
/// pollset.
pub fn react<'a>(env: Env<'a>, index: u16, token: u32, writes: Term<'a>) -> NifResult<Option<(Term<'a>, Polled)>> {
    let now = Instant::now();
    let mut work = Work::of_poll(now);
    let mut batch = Batch::new(env);
    reactor::write_all(env, writes, &mut work, &mut batch)?;
    // Reported sockets for which the call has no time are visited twice. Reads take at most as
    // long as writes.
    let limit = work.room(now).map_or(reactor::BATCH, |room| room.clamp(FEWEST_EVENTS, reactor::BATCH));
    let polled = poll_into(env, index, token, (now, limit), &mut work, &mut batch);
    Ok(polled.map(|polled| (batch.into_term(), polled)))
}

/// Visits ready targets, in a call of the poller that began at `now` with other work. Asks the
/// kernel for at most `limit` sockets, less those of the ready list. Events of reactors' sockets
/// go into `batch`.
fn poll_into<'a>(
    env: Env<'a>,
    index: u16,
    token: u32,
    (now, limit): (Instant, usize),
    work: &mut Work,
    batch: &mut Batch<'a>,
) -> Option<Polled> {
    let pollset = pollset::get(index);
    let Taken { list, round, slept } = pollset.take(token, now)?;
    let mut space = [const { MaybeUninit::uninit() }; BATCH];
    // If the list alone takes the whole time, some are taken from the kernel anyway, so that the
    // others do not starve.
    let room = limit.saturating_sub(list.len()).max(FEWEST_EVENTS);
    let events = pollset.epoll.take(&mut space[..room]);
    chaos::between();
    let Served { count, bulk, gather } = serve(env, index, (list, events), now, work, batch);
    let end = if count == 0 { now } else { Instant::now() };
    pollset.polled(end, gather);
    if count > 0 {
        add(&pollset.counters.polling_ns, (end - now).as_nanos() as u64);
        if slept.is_none() {
            add(&pollset.counters.between_ns, round.as_nanos() as u64);
        }
    }
    Some(Polled { events: count, round_ns: round.as_nanos() as u64, bulk })
}

/// Result of [`serve`].
struct Served {
    count: usize,
    bulk: Bulk,
    /// Only sockets that fill large reads and whose kernel buffers hold more while nothing is
    /// read.
    gather: bool,
}

/// Serves the list and the events. Targets for which there is no time go back to the list.
fn serve<'a>(
    env: Env<'a>,
    index: u16,
    (mut list, events): (VecDeque<Target>, &[Event]),
    now: Instant,
    work: &mut Work,
    batch: &mut Batch<'a>,
) -> Served {
    let pollset = pollset::get(index);
    let mut count = list.len();
    let mut tally = Tally::default();
    // Groups have a budget of their own, so that a long broadcast leaves time for the sockets.
    let mut groups = Work::of_groups(now);
    // Targets that got no turn go before those that are not finished.
    let (mut rest, mut unfinished) = (VecDeque::new(), VecDeque::new());
    // After a panic only the target being served is lost: epoll would not report the others again.
    panics::survive(|| {
        while let Some(target) = list.pop_front() {
            match target {
                Target::Group(_) if groups.is_over() => rest.push_back(target),
                Target::Group(handle) => {
                    if delivery::serve(env, index, handle, &mut groups, &mut tally) {
                        unfinished.push_back(target);
                    }
                }
                _ if work.is_over() => rest.push_back(target),
                Target::Socket(handle) => revisit(env, index, handle, work, batch),
                Target::Relay(handle, _) => relay::revisit(env, handle, work, &mut tally),
                Target::Pollset(_) => {}
            }
        }
    });
    let mut named = events.iter().enumerate();
    panics::survive(|| {
        for (at, event) in named.by_ref() {
            if let Some(next) = events.get(at + table::AHEAD) {
                prefetch(next.data.u64());
            }
            // The event of a waker has no target.
            let target = Target::from_raw(event.data.u64());
            count += usize::from(target.is_some());
            match target {
                Some(Target::Socket(handle)) => event_of_socket(env, index, (handle, event.flags), work, batch),
                Some(Target::Relay(handle, side)) => relay::ready(env, handle, side, event.flags, work, &mut tally),
                Some(Target::Group(_) | Target::Pollset(_)) | None => {}
            }
        }
    });
    rest.append(&mut unfinished);
    if !rest.is_empty() {
        pollset.ready.put_back(rest);
    }
    account(pollset, count, tally, work)
}

/// Adds the work of a round to the counters of the pollset and sums it up.
fn account(pollset: &Pollset, count: usize, tally: Tally, work: &mut Work) -> Served {
    pollset.counters.polled(count as u64);
    let (relays, mut bulk) = (tally.bulk, tally.bulk);
    tally.add_to(&pollset.counters);
    let mut narrow = false;
    if let Some(tally) = &mut work.tally {
        bulk += tally.bulk;
        narrow = tally.narrow;
        std::mem::take(tally).add_to(&pollset.counters);
    }
    let bulk = match count {
        0 => Bulk::No,
        _ if relays == count => Bulk::Relays,
        _ if bulk == count => Bulk::Mixed,
        _ => Bulk::No,
    };
    Served { count, bulk, gather: bulk == Bulk::Mixed && !narrow }
}

/// Visits a socket that the kernel reported.
#[inline]
fn event_of_socket<'a>(
    env: Env<'a>,
    index: u16,
    (handle, flags): (Handle, EventFlags),
    work: &mut Work,
    batch: &mut Batch<'a>,
) {
    // A socket that has moved to another pollset is reported there again. A visit here would take
    // data of a reactor that never sees this batch.
    if let Some(mut socket) = table::find(handle)
        && socket.pollset == index
    {
        note(&mut socket, flags);
        visit(env, &mut socket, work, batch);
    }
}

impl Encoder for Polled {
    fn encode<'a>(&self, env: Env<'a>) -> Term<'a> {
        match self.bulk {
            Bulk::Relays => (atoms::relays(), self.round_ns).encode(env),
            Bulk::Mixed => (atoms::bulk(), self.round_ns).encode(env),
            Bulk::No => (self.events, self.round_ns).encode(env),
        }
    }
}
