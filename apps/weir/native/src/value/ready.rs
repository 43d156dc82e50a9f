//! The ready list of a pollset: who serves it, and who has to be woken.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use super::handle::Target;
use super::sync::{self, Mutex, MutexGuard};

/// A poller that is awake or was woken, and has not polled for this long, is not running: its
/// scheduler is offline or busy, or it was killed. The thread serves until it is back.
pub const STALL: Duration = Duration::from_millis(20);

/// After this time the thread wakes the poller to reconsider.
const TERM: Duration = Duration::from_millis(250);

/// How long the thread waits for more data of a stream before it wakes its sleeping poller. A
/// wake-up and a read per 200 KiB instead of 60 halve the CPU time, and do not disturb the sender.
const GATHER: Duration = Duration::from_micros(50);

/// The ready list of a pollset, and who serves the pollset: its poller, or the thread in the
/// poller's place. A private pollset has no thread of its own.
///
/// No entry is ever lost: the poller finds it before it sleeps, or the thread that adds it finds
/// the poller asleep and wakes it, or the serving thread finds it. One lock over the list and the
/// sleep state ensures this.
///
/// `P` identifies a poller: a process of the VM in the engine, a channel in the models.
pub struct Ready<P> {
    state: Mutex<State<P>>,
    /// Number of lock waits.
    contended: AtomicU64,
    /// The poller sleeps and was not woken; readable without the lock.
    rests: AtomicBool,
}

struct State<P> {
    list: VecDeque<Target>,
    /// Targets that only the poller may serve.
    kept: VecDeque<Target>,
    poller: Option<P>,
    /// Identifies the current poller; each successor gets another.
    token: u32,
    /// When the poller went to sleep; `None` if it is awake.
    asleep: Option<Instant>,
    /// When it was sent the message that wakes it.
    summoned: Option<Instant>,
    /// The thread serves while the poller sleeps: there are only bulk streams, which send no
    /// messages, so no scheduler has to wake up for each part.
    bulk: bool,
    /// The thread was woken for the list, and has not looked at it yet.
    woken: bool,
    /// When the last poll ended.
    polled: Instant,
    /// The last poll served only streams, and the thread has not waited for more of them since.
    streams: bool,
}

/// What a poll starts with.
pub struct Taken {
    /// All targets of the list.
    pub list: VecDeque<Target>,
    /// How long the poller slept, if it did.
    pub slept: Option<Duration>,
    /// The time since the end of the last poll.
    pub round: Duration,
}

/// Result of going to sleep.
#[derive(Debug, PartialEq, Eq)]
pub enum Sleep {
    /// The poller gets the message `weir_wake` when there is work.
    Asleep,
    /// There is work.
    Busy,
    /// The caller is no longer the poller.
    Stale,
}

/// Who must be woken.
#[derive(Debug, PartialEq, Eq)]
pub enum Wake<P> {
    Nobody,
    Thread,
    Poller(P),
}

/// What the thread does next.
#[derive(Debug, PartialEq, Eq)]
pub enum Duty<P> {
    /// Wait, for at most this long if given.
    Rest(Option<Duration>),
    /// Wait for events of the kernel in the poller's place, for at most this long.
    Watch(Duration),
    /// Wait exactly this long, and ask again.
    Gather(Duration),
    /// Wake the poller.
    Summon(P),
    /// Serve these, and the events of the kernel.
    Serve(VecDeque<Target>),
}

impl<P: Copy> Ready<P> {
    /// An empty list without a poller.
    pub fn new() -> Ready<P> {
        let state = Mutex::new(State {
            list: VecDeque::new(),
            kept: VecDeque::new(),
            poller: None,
            token: 0,
            asleep: None,
            summoned: None,
            bulk: false,
            woken: false,
            polled: Instant::now(),
            streams: false,
        });
        Ready { state, contended: AtomicU64::new(0), rests: AtomicBool::new(false) }
    }

    fn lock(&self) -> MutexGuard<'_, State<P>> {
        sync::lock(&self.state, || {
            self.contended.fetch_add(1, Relaxed);
        })
    }

    /// Number of lock waits.
    pub fn contended(&self) -> u64 {
        self.contended.load(Relaxed)
    }

    /// Whether the poller sleeps and has not been woken. A hint: it may be outdated.
    pub fn rests(&self) -> bool {
        self.rests.load(Relaxed)
    }

    /// Resets the counts for a new, unrelated poller.
    pub fn begin_anew(&self) {
        self.contended.store(0, Relaxed);
        self.lock().polled = Instant::now();
    }

    /// Makes `poller` the poller, and returns its token. The previous token becomes invalid.
    pub fn claim(&self, poller: P) -> u32 {
        self.lock().succeed(Some(poller))
    }

    /// Whether this is the poller.
    pub fn is_polled_by(&self, poller: P) -> bool
    where
        P: PartialEq,
    {
        self.lock().poller == Some(poller)
    }

    /// The poller.
    pub fn poller(&self) -> Option<P> {
        self.lock().poller
    }

    /// Invalidates the poller's token, and clears the list.
    pub fn abandon(&self) {
        let mut state = self.lock();
        state.succeed(None);
        state.list.clear();
        state.kept.clear();
    }

    /// Adds a target. Returns who must be woken: once per sleep, however many targets are added.
    pub fn push(&self, target: Target) -> Wake<P> {
        let mut state = self.lock();
        state.list.push_back(target);
        if state.asleep.is_none() {
            return Wake::Nobody;
        }
        if state.bulk {
            return if std::mem::replace(&mut state.woken, true) { Wake::Nobody } else { Wake::Thread };
        }
        self.summoned(state.summon(Instant::now())).map_or(Wake::Nobody, Wake::Poller)
    }

    /// Adds a target that only the poller may serve. The serving thread calls this, and then wakes
    /// the poller.
    pub fn keep(&self, target: Target) {
        self.lock().kept.push_back(target);
    }

    /// Puts unserved targets back in front of the list.
    pub fn put_back(&self, mut rest: VecDeque<Target>) {
        let mut state = self.lock();
        rest.append(&mut state.list);
        state.list = rest;
    }

    /// Takes the list for a poll that begins at `now`. `None` if the token is no longer valid.
    pub fn take(&self, token: u32, now: Instant) -> Option<Taken> {
        let mut state = self.lock();
        if state.token != token {
            return None;
        }
        state.summoned = None;
        let slept = state.asleep.take().map(|since| now - since);
        if slept.is_some() {
            self.rests.store(false, Relaxed);
        }
        let mut list = std::mem::take(&mut state.kept);
        match list.is_empty() {
            true => list = std::mem::take(&mut state.list),
            false => list.append(&mut state.list),
        }
        Some(Taken { list, slept, round: now - state.polled })
    }

    /// Notes when a poll ended, and whether it served only streams that may be gathered.
    pub fn polled(&self, end: Instant, streams: bool) {
        let mut state = self.lock();
        state.polled = end;
        state.streams = streams;
    }

    /// Lets the poller sleep, if the list is empty. With only bulk streams, the thread serves in
    /// the meantime. `arm` arranges that events of the kernel are reported; if it fails, the
    /// poller has to keep polling.
    pub fn sleep(&self, token: u32, bulk: bool, arm: impl FnOnce() -> bool) -> Sleep {
        let mut state = self.lock();
        if state.token != token {
            return Sleep::Stale;
        }
        if !state.list.is_empty() || !state.kept.is_empty() || !arm() {
            return Sleep::Busy;
        }
        state.asleep = Some(Instant::now());
        state.summoned = None;
        state.bulk = bulk;
        state.woken = false;
        self.rests.store(true, Relaxed);
        Sleep::Asleep
    }

    /// Returns the poller to wake, if it sleeps and was not woken yet.
    pub fn summon(&self) -> Option<P> {
        let poller = self.lock().summon(Instant::now());
        self.summoned(poller)
    }

    fn summoned(&self, poller: Option<P>) -> Option<P> {
        if poller.is_some() {
            self.rests.store(false, Relaxed);
        }
        poller
    }

    /// Ends the thread's service for bulk streams, because there is other work. Returns the poller
    /// to wake.
    pub fn resign(&self) -> Option<P> {
        let mut state = self.lock();
        state.bulk = false;
        self.summoned(state.summon(Instant::now()))
    }

    /// What the thread should do at the time `now`. `named` says whether the kernel has reported
    /// something.
    pub fn duty(&self, named: bool, now: Instant) -> Duty<P> {
        let mut state = self.lock();
        state.woken = false;
        let Some(asleep) = state.asleep else {
            // It is polling, or should be.
            return match state.poller {
                Some(_) => {
                    let polled = state.polled;
                    state.serve_if_stalled(polled, named, now)
                }
                None => Duty::Rest(None),
            };
        };
        if let Some(since) = state.summoned {
            return state.serve_if_stalled(since, named, now);
        }
        if state.bulk && now < asleep + TERM {
            return if named || !state.list.is_empty() {
                Duty::Serve(std::mem::take(&mut state.list))
            } else {
                Duty::Rest(None)
            };
        }
        if named && std::mem::take(&mut state.streams) {
            return Duty::Gather(GATHER);
        }
        if named || !state.list.is_empty() {
            return self.summoned(state.summon(now)).map_or(Duty::Rest(None), Duty::Summon);
        }
        Duty::Rest(None)
    }
}

impl<P: Copy> State<P> {
    fn succeed(&mut self, poller: Option<P>) -> u32 {
        self.poller = poller;
        self.token = self.token.wrapping_add(1);
        self.asleep = None;
        self.summoned = None;
        self.token
    }

    fn summon(&mut self, now: Instant) -> Option<P> {
        if self.asleep.is_none() || self.summoned.is_some() {
            return None;
        }
        self.summoned = Some(now);
        self.poller
    }

    fn serve_if_stalled(&mut self, since: Instant, named: bool, now: Instant) -> Duty<P> {
        let rest = STALL.saturating_sub(now.saturating_duration_since(since));
        if !rest.is_zero() {
            Duty::Rest(Some(rest))
        } else if named || !self.list.is_empty() {
            Duty::Serve(std::mem::take(&mut self.list))
        } else {
            Duty::Watch(STALL)
        }
    }
}

#[cfg(test)]
// The models in `concurrency/` include this file by its path, so `tests` needs one, too.
#[path = "ready/tests.rs"]
mod tests;
