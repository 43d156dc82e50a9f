//! What a pollset visits without an event of the kernel, and whether its poller has to be woken for that.

use std::collections::VecDeque;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use super::handle::Target;
use super::sync::{Mutex, MutexGuard};

/// The ready list of a pollset: the part of it that others than the poller touch.
///
/// What is on the list is never forgotten: either the poller finds it before it sleeps, or whoever put it there finds
/// the poller asleep and wakes it. One lock over the list and the sleep sees to that.
///
/// `P` is how a poller is reached: a process of the VM in the engine, a channel in the models.
pub struct Ready<P>(Mutex<State<P>>);

struct State<P> {
    list: VecDeque<Target>,
    poller: Option<P>,
    /// The poller's proof that it is still the one: a successor has the next.
    token: u32,
    /// The poller sleeps since then, and has to be woken.
    asleep: Option<Instant>,
    /// When the last poll ended.
    polled: Instant,
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
    /// The poller will get a message when there is something to do: `{select, …}` from the VM or `weir_wake` from us.
    Armed,
    /// There is something to do.
    Busy,
    /// The caller is not the poller any more.
    Stale,
    /// The VM does not watch the descriptor.
    Refused,
}

impl<P: Copy> Ready<P> {
    /// An empty list that nobody polls.
    pub fn new() -> Ready<P> {
        let (list, polled) = (VecDeque::new(), Instant::now());
        Ready(Mutex::new(State { list, poller: None, token: 0, asleep: None, polled }))
    }

    fn lock(&self) -> MutexGuard<'_, State<P>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes `poller` the one that polls, and returns its token. Whoever was it before is no longer.
    pub fn claim(&self, poller: P) -> u32 {
        let mut state = self.lock();
        state.poller = Some(poller);
        state.token = state.token.wrapping_add(1);
        state.asleep = None;
        state.token
    }

    /// Whether this is the one that polls.
    pub fn is_polled_by(&self, poller: P) -> bool
    where
        P: PartialEq,
    {
        self.lock().poller == Some(poller)
    }

    /// Whoever polls.
    pub fn poller(&self) -> Option<P> {
        self.lock().poller
    }

    /// Makes the token of whoever polls stale, and forgets what is on the list.
    pub fn abandon(&self) {
        let mut state = self.lock();
        state.poller = None;
        state.token = state.token.wrapping_add(1);
        state.asleep = None;
        state.list.clear();
    }

    /// Puts a target on the list, and calls `wake` if the poller sleeps.
    pub fn push(&self, target: Target, wake: impl FnOnce(P)) {
        let mut state = self.lock();
        state.list.push_back(target);
        if state.asleep.is_some()
            && let Some(poller) = state.poller
        {
            wake(poller);
        }
    }

    /// Takes the list for a poll that begins `now`. Nothing if the token is not the poller's any more.
    pub fn take(&self, token: u32, now: Instant) -> Option<Taken> {
        let mut state = self.lock();
        if state.token != token {
            return None;
        }
        let slept = state.asleep.take().map(|since| now - since);
        Some(Taken { list: std::mem::take(&mut state.list), slept, round: now - state.polled })
    }

    /// Notes when a poll ended.
    pub fn polled(&self, end: Instant) {
        self.lock().polled = end;
    }

    /// Lets the poller sleep, if nothing is on the list and `arm` sees to it that the kernel's events wake it too.
    pub fn sleep(&self, token: u32, arm: impl FnOnce() -> bool) -> Sleep {
        let mut state = self.lock();
        if state.token != token {
            return Sleep::Stale;
        }
        if !state.list.is_empty() {
            return Sleep::Busy;
        }
        if !arm() {
            return Sleep::Refused;
        }
        state.asleep = Some(Instant::now());
        Sleep::Armed
    }
}

#[cfg(test)]
mod tests {
    use super::super::handle::Handle;
    use super::*;

    fn socket(slot: u32, generation: u32) -> Target {
        Target::Socket(Handle::new(slot, generation))
    }

    fn push(ready: &Ready<char>, target: Target) -> Option<char> {
        let mut woken = None;
        ready.push(target, |poller| woken = Some(poller));
        woken
    }

    #[test]
    fn a_poll_takes_what_was_pushed_in_order() {
        let ready = Ready::new();
        let token = ready.claim('a');
        let targets = [socket(3, 0), socket(1, 7), socket(3, 0)];
        for target in targets {
            assert_eq!(push(&ready, target), None);
        }
        assert_eq!(ready.sleep(token, || true), Sleep::Busy);
        assert_eq!(ready.take(token, Instant::now()).expect("ours").list, targets);
        assert!(ready.take(token, Instant::now()).expect("ours").list.is_empty());
    }

    #[test]
    fn a_sleeping_poller_is_woken_until_it_polls() {
        let ready = Ready::new();
        let token = ready.claim('a');
        assert_eq!(ready.sleep(token, || true), Sleep::Armed);
        assert_eq!(push(&ready, socket(0, 0)), Some('a'));
        assert!(ready.take(token, Instant::now()).expect("ours").slept.is_some());
        assert_eq!(push(&ready, socket(0, 0)), None);
    }

    #[test]
    fn a_descriptor_that_is_not_watched_lets_nobody_sleep() {
        let ready = Ready::new();
        let token = ready.claim('a');
        assert_eq!(ready.sleep(token, || false), Sleep::Refused);
        assert_eq!(push(&ready, socket(0, 0)), None);
    }

    #[test]
    fn a_successor_makes_the_token_stale() {
        let ready = Ready::new();
        let old = ready.claim('a');
        assert_eq!(ready.sleep(old, || true), Sleep::Armed);
        let new = ready.claim('b');
        assert_eq!(push(&ready, socket(0, 0)), None);
        assert!(ready.take(old, Instant::now()).is_none());
        assert_eq!(ready.sleep(old, || true), Sleep::Stale);
        assert_eq!(ready.take(new, Instant::now()).expect("ours").list.len(), 1);
    }
}
