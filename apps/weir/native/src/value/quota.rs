//! So many of something in each second, for what helps if it is rare and costs if it is not.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// What is left of this second's share. Threads that begin a second at the same time may take a few more.
pub struct Quota {
    most: u64,
    second: AtomicU64,
    taken: AtomicU64,
}

impl Quota {
    /// `most` in each second.
    pub fn new(most: u64) -> Quota {
        Quota { most, second: AtomicU64::new(0), taken: AtomicU64::new(0) }
    }

    /// Takes one of those of this second, of any clock that counts seconds; false if there is none left.
    pub fn take(&self, second: u64) -> bool {
        if self.second.load(Relaxed) != second {
            self.second.store(second, Relaxed);
            self.taken.store(0, Relaxed);
        }
        // Most of the time there is nothing left, and nothing to write.
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
