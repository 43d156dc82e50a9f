//! What a pollset visits without an event of the kernel, who serves it, and who has to be woken for that.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use super::handle::Target;
use super::sync::{self, Mutex, MutexGuard};

/// A poller that has not polled for so long although it is awake, or was woken, is not running: its scheduler is offline or
/// has much else to do, or it was killed. The thread serves until it is back.
pub const STALL: Duration = Duration::from_millis(20);

/// After so long the thread has the poller look at how things are.
const TERM: Duration = Duration::from_millis(250);

/// A stream whose poller has gone to sleep is given so long to move more before the poller is woken for it: a wake-up
/// and a read for each 200 KiB instead of each 60 take half of the CPU and let the sender go on undisturbed.
const GATHER: Duration = Duration::from_micros(50);

/// The ready list of a pollset, and who serves the pollset: its poller, or its thread in the poller's place. A pollset of a
/// process that polls for itself has no thread of its own.
///
/// What is on the list is never forgotten: either the poller finds it before it sleeps, or the thread that put it there finds
/// the poller asleep and wakes it, or the thread that serves meanwhile. One lock over the list and the sleep sees to that.
///
/// `P` is how a poller is reached: a process of the VM in the engine, a channel in the models.
pub struct Ready<P> {
    state: Mutex<State<P>>,
    /// How often somebody else had the lock that was wanted.
    contended: AtomicU64,
    /// The poller sleeps and was not woken: for those who want to know without the lock.
    rests: AtomicBool,
}

struct State<P> {
    list: VecDeque<Target>,
    /// What only the poller may serve.
    kept: VecDeque<Target>,
    poller: Option<P>,
    /// The poller's proof that it is still the one: a successor has the next.
    token: u32,
    /// The poller sleeps since then, and has to be woken.
    asleep: Option<Instant>,
    /// It was sent the message that wakes it.
    summoned: Option<Instant>,
    /// The thread serves while the poller sleeps: nothing comes but bulk streams, which send no messages, and there is no
    /// need to wake a scheduler for each part.
    bulk: bool,
    /// The thread was woken for the list, and has not looked at it yet.
    woken: bool,
    /// When the last poll ended.
    polled: Instant,
    /// It has served nothing but streams, and the thread has not waited for more of them since.
    streams: bool,
}

/// What a poll begins with.
pub struct Taken {
    /// All that was on the list.
    pub list: VecDeque<Target>,
    /// How long the poller slept, if it did.
    pub slept: Option<Duration>,
    /// The time since the end of the poll before.
    pub round: Duration,
}

/// How going to sleep went.
#[derive(Debug, PartialEq, Eq)]
pub enum Sleep {
    /// The poller gets the message `weir_wake` when there is something to do.
    Asleep,
    /// There is something to do.
    Busy,
    /// The caller is not the poller any more.
    Stale,
}

/// Who has to be woken.
#[derive(Debug, PartialEq, Eq)]
pub enum Wake<P> {
    Nobody,
    Thread,
    Poller(P),
}

/// What the thread does next.
#[derive(Debug, PartialEq, Eq)]
pub enum Duty<P> {
    /// Wait; for so long at most, if that is said.
    Rest(Option<Duration>),
    /// Wait for the kernel's events in the poller's place, for so long at most.
    Watch(Duration),
    /// Wait so long, whatever comes, and ask again.
    Gather(Duration),
    /// Wake the poller.
    Summon(P),
    /// Serve these, and what the kernel names.
    Serve(VecDeque<Target>),
}

impl<P: Copy> Ready<P> {
    /// An empty list that nobody polls.
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

    /// How often somebody has waited for the lock.
    pub fn contended(&self) -> u64 {
        self.contended.load(Relaxed)
    }

    /// Whether the poller sleeps, and nobody has woken it. A hint: it may have changed by now.
    pub fn rests(&self) -> bool {
        self.rests.load(Relaxed)
    }

    /// Begins to count anew, for another poller that has nothing to do with those before.
    pub fn begin_anew(&self) {
        self.contended.store(0, Relaxed);
        self.lock().polled = Instant::now();
    }

    /// Makes `poller` the one that polls, and returns its token. The one before it polls no longer.
    pub fn claim(&self, poller: P) -> u32 {
        self.lock().succeed(Some(poller))
    }

    /// Whether this is the one that polls.
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

    /// Makes the token of the poller stale, and forgets what is on the list.
    pub fn abandon(&self) {
        let mut state = self.lock();
        state.succeed(None);
        state.list.clear();
        state.kept.clear();
    }

    /// Puts a target on the list. Returns who has to be woken: once for each sleep, however many are put there.
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

    /// Puts a target on the list that only the poller may serve. The thread does, and has the poller woken then.
    pub fn keep(&self, target: Target) {
        self.lock().kept.push_back(target);
    }

    /// Puts what there was no time for in front of the list, for the next to serve.
    pub fn put_back(&self, mut rest: VecDeque<Target>) {
        let mut state = self.lock();
        rest.append(&mut state.list);
        state.list = rest;
    }

    /// Takes the list for a poll that begins `now`. Nothing if the token is not the poller's any more.
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

    /// Notes when a poll ended, and whether it has served nothing but streams that may wait.
    pub fn polled(&self, end: Instant, streams: bool) {
        let mut state = self.lock();
        state.polled = end;
        state.streams = streams;
    }

    /// Lets the poller sleep, if nothing is on the list. The thread serves meanwhile if there are but bulk streams. `arm`
    /// sees to it that somebody hears of the kernel's events; where it fails, the poller has to look itself.
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

    /// Has the poller woken, if it sleeps and nobody has done so.
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

    /// Ends the thread's service for bulk streams, as something else has come. Returns whom to wake.
    pub fn resign(&self) -> Option<P> {
        let mut state = self.lock();
        state.bulk = false;
        self.summoned(state.summon(Instant::now()))
    }

    /// What the thread does at the time `now`. `named`: the kernel has named something.
    pub fn duty(&self, named: bool, now: Instant) -> Duty<P> {
        let mut state = self.lock();
        state.woken = false;
        let Some(asleep) = state.asleep else {
            // It polls, or should.
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
// The models include this file by its path, from where `tests` alone would not be found.
#[path = "ready/tests.rs"]
mod tests;
