//! A quota per second, for work that pays off if it is rare.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The state of the current second. Threads that start a second at the same time may take a few
/// more.
pub struct Quota {
    most: u64,
    second: AtomicU64,
    taken: AtomicU64,
}

impl Quota {
    /// A quota of `most` per second.
    pub fn new(most: u64) -> Quota {
        Quota { most, second: AtomicU64::new(0), taken: AtomicU64::new(0) }
    }

    /// Takes one from the quota of this second, which may come from any clock. False if none is
    /// left.
    pub fn take(&self, second: u64) -> bool {
        if self.second.load(Relaxed) != second {
            self.second.store(second, Relaxed);
            self.taken.store(0, Relaxed);
        }
        // Usually none is left, and nothing is written.
        self.taken.load(Relaxed) < self.most && self.taken.fetch_add(1, Relaxed) < self.most
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_second_has_its_own() {
        let quota = Quota::new(2);
        assert_eq!([1, 1, 1, 2, 2, 2].map(|second| quota.take(second)), [true, true, false, true, true, false]);
    }
}
