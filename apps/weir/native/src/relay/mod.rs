//! Relays: two connections joined, whose bytes are forwarded without a process in between.
//!
//! A relay takes the descriptors of its sockets, which are closed from then on, and lives in a
//! table of its own. An event on either connection finds both connections and their buffers with
//! one lookup, under one lock. The directions are independent ([`flow`]). The relay ends when both
//! directions have ended, or at the first error ([`live`]).
//!
//! May use the verbs and what is below them, but no reactors.

mod connection;
mod flow;
mod live;
mod pipe;
pub mod start;
mod statistics;

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use rustix::net::{Shutdown, SocketAddrAny};
use rustler::{Atom, Encoder, Env, LocalPid, Term};

use self::connection::Turn;
use self::live::{Ending, Live};
pub use self::pipe::Splice;
use crate::kernel::clock::Nanos;
use crate::kernel::scheduler;
use crate::listener::Listener;
use crate::pollset;
use crate::term::address;
use crate::term::atoms;
use crate::term::errno;
use crate::value::counters::Tally;
use crate::value::handle::{Handle, SLOTS, Side, Target};
use crate::value::latency::Latency;
use crate::value::shared::Shared;
use crate::value::slots::{Locked, Lookup, Occupant, Slots};
use crate::value::sync::Mutex;
use crate::value::vacancies::Common;
use crate::value::work::Work;

const CHUNK: usize = 1024;

pub static RELAYS: Shared<Slots<Relay, { SLOTS as usize / CHUNK }, CHUNK>> =
    Shared::new(Slots::new(Mutex::new(Common::new())));

/// Finds the relay of a handle.
pub fn lookup(handle: Handle) -> Lookup<'static, Relay> {
    RELAYS.lookup(handle)
}

/// Prefetches a relay into the processor's cache.
pub fn prefetch(handle: Handle) {
    RELAYS.prefetch(handle);
}

fn find(handle: Handle) -> Option<Locked<'static, Relay>> {
    RELAYS.find(handle)
}

/// The handles of the relays in a chunk; `None` past the last chunk. Chunks bound the time of a
/// walk.
pub fn handles(chunk: usize) -> Option<Vec<Handle>> {
    RELAYS.handles(chunk)
}

/// The relays in a chunk whose connections came through `listener`, each with the process that a
/// connection was accepted for; see [`handles`].
pub fn of_listener(chunk: usize, listener: &Arc<Listener>) -> Option<Vec<(Handle, LocalPid)>> {
    RELAYS.select(chunk, |relay| {
        let mut permits = relay.live.iter().flat_map(|live| &live.permits).flatten();
        permits.find(|permit| permit.is_of(listener)).map(|permit| (relay.handle(), permit.process))
    })
}

/// The relays in a chunk that need a timer now, with the milliseconds until their timeout.
pub fn due(chunk: usize) -> Option<Vec<(Handle, u64)>> {
    let now = Nanos::now();
    RELAYS.select(chunk, |relay| {
        let wait = relay.live.as_mut().filter(|live| !live.timed)?.look_soon(now)?;
        Some((relay.handle(), millis(wait)))
    })
}

/// The options of a relay.
pub struct Options {
    /// Bytes per direction that may be read before the other side has taken them.
    pub buffer: usize,
    /// The same while splicing: the size of the pipe.
    pub pipe: usize,
    pub splice: Splice,
    /// How long the relay may be idle.
    pub idle_timeout: Option<Duration>,
    /// How long one direction may outlive the other.
    pub half_close_timeout: Option<Duration>,
    /// The relay survives its owner.
    pub detached: bool,
    /// The observer is notified of its end, too.
    pub observed: bool,
    /// Where reply times are counted, in addition to its own statistics.
    pub latency: Option<Arc<Latency>>,
}

/// A relay, in its slot of the table, under the slot's lock.
pub struct Relay {
    slot: u32,
    generation: u32,
    live: Option<Live>,
}

impl Occupant for Relay {
    fn vacant(slot: u32, generation: u32) -> Relay {
        Relay { slot, generation, live: None }
    }

    fn handle(&self) -> Handle {
        Handle::new(self.slot, self.generation)
    }

    fn is_open(&self) -> bool {
        self.live.is_some()
    }

    /// Both connections end, and with them the relay.
    fn abandoned(&mut self) {
        for connection in self.live.iter().flat_map(|live| [&live.left, &live.right]) {
            let _ = rustix::net::shutdown(connection.fd.as_fd(), Shutdown::Both);
        }
    }

    fn here() -> usize {
        scheduler::number().into()
    }
}

/// The address of a connection's peer; `None` if the peer has closed.
fn peer(fd: &OwnedFd) -> Option<SocketAddrAny> {
    rustix::net::getpeername(fd.as_fd()).ok().flatten()
}

/// Serves a connection that the kernel has reported.
pub fn ready(env: Env, handle: Handle, side: Side, flags: EventFlags, work: &mut Work, tally: &mut Tally) {
    if let Some(mut relay) = find(handle)
        && let Some(live) = &mut relay.live
    {
        let result = live.ready(handle, (side, flags), work, tally);
        relay.served(env, result, tally);
    }
}

/// Continues a relay of the ready list.
pub fn revisit(env: Env, handle: Handle, work: &mut Work, tally: &mut Tally) {
    if let Some(mut relay) = find(handle)
        && let Some(live) = &mut relay.live
    {
        live.queued = false;
        let result = live.go_on(handle, work, tally);
        relay.served(env, result, tally);
    }
}

/// Stops a relay, because its owner is dead.
pub fn owner_died(env: Env, handle: Handle) {
    if let Some(mut relay) = find(handle) {
        relay.stop(env);
    }
}

impl Relay {
    /// Handles the result of a visit: ends the relay, or schedules another visit.
    #[inline]
    fn served(&mut self, env: Env, result: Result<Turn, Errno>, tally: &mut Tally) {
        let Some(live) = &mut self.live else { return };
        match result {
            Err(errno) => self.end(env, Ending::Failed(errno)),
            Ok(_) if live.to_left.is_finished() && live.to_right.is_finished() => {
                self.end(env, Ending::Complete);
            }
            Ok(turn) => {
                tally.bulk += usize::from(live.is_bulk());
                if turn == Turn::Over {
                    self.enqueue(env);
                }
            }
        }
    }

    /// Schedules a visit at the next poll.
    fn enqueue(&mut self, env: Env) {
        let target = Target::Relay(self.handle(), Side::Left);
        if let Some(live) = &mut self.live
            && !live.queued
        {
            live.queued = true;
            pollset::push_ready(env, live.pollset, target);
        }
    }

    /// The owner, the pollset and the statistics.
    pub fn describe<'a>(&self, env: Env<'a>) -> Option<(LocalPid, u16, Term<'a>)> {
        self.live.as_ref().map(|live| (live.owner, live.pollset, live.describe(env)))
    }

    /// The addresses of both peers, `undefined` for one that has closed; `None` if the relay has
    /// ended.
    pub fn peers<'a>(&self, env: Env<'a>) -> Option<(Term<'a>, Term<'a>)> {
        let live = self.live.as_ref()?;
        Some((encode_peer(env, peer(&live.left.fd)), encode_peer(env, peer(&live.right.fd))))
    }

    /// Stops the relay for a process.
    pub fn stop(&mut self, env: Env) {
        self.end(env, Ending::Dropped(None));
    }

    /// Ends the relay if a timeout has passed. Otherwise returns the milliseconds until the next
    /// check; `None` if that is not soon, since [`due`] will return it in time.
    pub fn expire(&mut self, env: Env) -> Option<u64> {
        let wait = self.live.as_mut()?.look_soon(Nanos::now())?;
        if wait.is_zero() {
            self.end(env, Ending::Dropped(Some(atoms::timeout())));
            return None;
        }
        Some(millis(wait))
    }

    /// Closes both connections and notifies the owner. The slot becomes vacant when it is
    /// unlocked.
    fn end(&mut self, env: Env, ending: Ending) {
        let Some(live) = self.live.take() else { return };
        let result = match ending {
            Ending::Complete | Ending::Dropped(None) => atoms::closed().encode(env),
            Ending::Dropped(Some(reason)) => (atoms::error(), reason).encode(env),
            // EPIPE without our own shutdown is a reset by the peer.
            Ending::Failed(Errno::PIPE) => (atoms::error(), atoms::econnreset()).encode(env),
            Ending::Failed(errno) => (atoms::error(), errno::atom(env, errno)).encode(env),
        };
        let term: (Atom, u64) = (atoms::weir_relay(), self.handle().raw());
        // A dead owner needs no notice.
        let _ = env.send(&live.owner, (atoms::weir_relay(), term, result, live.describe(env)));
        if let Some(peers) = &live.peers {
            let [left, right] = peers.as_ref().clone().map(|peer| encode_peer(env, peer));
            let about = (atoms::weir_relay(), term, live.owner, result, live.describe(env), left, right);
            // If the observer is just restarting, the event is lost.
            if let Some(observer) = env.whereis_pid(atoms::weir_relay_observer()) {
                let _ = env.send(&observer, about);
            }
        }
        for permit in live.close(ending).into_iter().flatten() {
            permit.end(env);
        }
    }
}

fn encode_peer<'a>(env: Env<'a>, peer: Option<SocketAddrAny>) -> Term<'a> {
    let encoded = peer.and_then(|peer| address::encode(env, peer).ok());
    encoded.unwrap_or_else(|| atoms::undefined().encode(env))
}

/// Rounded up, so that a timer does not fire early.
fn millis(wait: Duration) -> u64 {
    wait.as_micros().div_ceil(1000) as u64
}
