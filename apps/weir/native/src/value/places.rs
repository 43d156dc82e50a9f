//! The connection limit of a listener, and its counts of connections.
//!
//! A freed place is kept on the scheduler that freed it, for its next connection. So connections
//! that come and go on one scheduler write only to memory of that scheduler. When no common place
//! is left, a place that another scheduler keeps is taken.
//!
//! Two pairs of operations rely on the fences: each side writes one word and then reads the
//! other's. At least one of them sees the other's write.

use super::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst, fence};

/// Maximum number of places that are kept for one scheduler.
const KEPT: u64 = 32;

/// The places of a listener.
pub struct Places {
    max: AtomicU64,
    /// Places of connections, and places that are kept.
    taken: AtomicU64,
    /// The listener waits for a place: freeing one must resume it.
    wanted: AtomicBool,
    shares: Box<[Share]>,
}

/// The words that one scheduler writes to, in two cache lines of its own, since processors fetch
/// them in pairs.
#[repr(align(128))]
struct Share {
    kept: AtomicU64,
    came: AtomicU64,
    left: AtomicU64,
}

/// Subtracts one, unless the count is zero.
fn take_one(count: &AtomicU64) -> bool {
    count.fetch_update(SeqCst, SeqCst, |count| count.checked_sub(1)).is_ok()
}

impl Places {
    /// `max` places, for callers on this many schedulers. Other threads share with these.
    pub fn new(max: u64, schedulers: usize) -> Places {
        let share = |_| Share { kept: AtomicU64::new(0), came: AtomicU64::new(0), left: AtomicU64::new(0) };
        Places {
            max: AtomicU64::new(max),
            taken: AtomicU64::new(0),
            wanted: AtomicBool::new(false),
            shares: (0..schedulers).map(share).collect(),
        }
    }

    fn share(&self, here: usize) -> &Share {
        &self.shares[here % self.shares.len()]
    }

    /// Maximum number of connections.
    pub fn max(&self) -> u64 {
        self.max.load(SeqCst)
    }

    /// Changes the maximum. Waiting callers have to try again.
    pub fn set_max(&self, max: u64) {
        self.max.store(max, SeqCst);
        fence(SeqCst);
        for share in &self.shares {
            let kept = share.kept.swap(0, SeqCst);
            self.taken.fetch_sub(kept, SeqCst);
        }
    }

    /// Takes a place for a caller on scheduler `here`. False if there is none.
    pub fn take(&self, here: usize) -> bool {
        let within = || self.taken.load(SeqCst) <= self.max();
        if within() && take_one(&self.share(here).kept) {
            return true;
        }
        let one_more = |taken| (taken < self.max()).then_some(taken + 1);
        self.taken.fetch_update(SeqCst, SeqCst, one_more).is_ok()
            || within() && self.shares.iter().any(|share| take_one(&share.kept))
    }

    /// Like `take`, but if there is none, the next [`give`](Self::give) reports that someone
    /// waits.
    pub fn take_or_wait(&self, here: usize) -> bool {
        // A place that is freed later finds the mark; the second try finds one that was freed
        // before.
        self.wanted.store(true, SeqCst);
        fence(SeqCst);
        self.take(here)
    }

    /// Frees a place. Returns whether someone waits for it and must be notified.
    #[must_use]
    pub fn give(&self, here: usize) -> bool {
        let (share, within) = (self.share(here), || self.taken.load(SeqCst) <= self.max());
        if within() && share.kept.load(SeqCst) < KEPT {
            share.kept.fetch_add(1, SeqCst);
            fence(SeqCst);
            // The maximum may have been lowered, and `set_max` may have looked here before.
            if !within() && take_one(&share.kept) {
                self.taken.fetch_sub(1, SeqCst);
            }
        } else {
            self.taken.fetch_sub(1, SeqCst);
        }
        fence(SeqCst);
        self.wanted.load(SeqCst) && self.wanted.swap(false, SeqCst)
    }

    /// Counts a new connection on scheduler `here`.
    pub fn count_arrival(&self, here: usize) {
        self.share(here).came.fetch_add(1, SeqCst);
    }

    /// Counts a closed connection on scheduler `here`.
    pub fn count_departure(&self, here: usize) {
        self.share(here).left.fetch_add(1, SeqCst);
    }

    /// Number of connections that have come.
    pub fn arrivals(&self) -> u64 {
        self.shares.iter().map(|share| share.came.load(SeqCst)).sum()
    }

    /// Number of open connections.
    pub fn present(&self) -> u64 {
        // In this order, since a connection arrives before it leaves.
        let left: u64 = self.shares.iter().map(|share| share.left.load(SeqCst)).sum();
        self.arrivals() - left
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_than_there_may_be_have_a_place() {
        let places = Places::new(3, 2);
        assert_eq!([0, 1, 0, 1].map(|here| places.take(here)), [true, true, true, false]);
        assert!(!places.give(0));
        // It is kept for scheduler 0, but the other may take it.
        assert_eq!([1, 0].map(|here| places.take(here)), [true, false]);
    }

    #[test]
    fn who_waits_is_told_of_once() {
        let places = Places::new(1, 2);
        assert!(places.take(0));
        assert!(!places.take_or_wait(1));
        assert!(places.give(0));
        assert!(places.take(1));
        assert!(!places.give(1));
    }

    #[test]
    fn what_was_kept_is_no_place_any_more_when_there_are_fewer() {
        let places = Places::new(100, 2);
        let taken = (0..100).filter(|here| places.take(*here)).count();
        let told = (0..50).filter(|here| places.give(*here)).count();
        places.set_max(60);
        assert_eq!((taken, told), (100, 0));
        assert_eq!((0..20).filter(|here| places.take(*here)).count(), 10);
        places.set_max(40);
        assert_eq!((0..20).filter(|here| places.give(*here)).count(), 0);
        assert!(!places.take(0));
        assert!(!places.give(0));
        assert!(places.take(1));
    }

    #[test]
    fn there_is_no_end_of_places() {
        let places = Places::new(u64::MAX, 1);
        assert!(places.take(0) && places.take(5));
    }

    #[test]
    fn connections_are_counted_wherever_they_come_and_leave() {
        let places = Places::new(10, 2);
        (0..5).for_each(|here| places.count_arrival(here));
        places.count_departure(1);
        assert_eq!((places.arrivals(), places.present()), (5, 4));
    }
}
