//! Decides which listeners never read.

/// Slow listeners are spread evenly among the others, because a server may serve them in order.
#[derive(Clone, Copy, Debug)]
pub struct Readers {
    /// All listeners.
    pub all: u32,
    /// The number of slow listeners.
    pub slow: u32,
}

impl Readers {
    /// Whether the listener of this index never reads.
    pub fn is_slow(self, index: u32) -> bool {
        let slow_before =
            |index: u32| u64::from(index) * u64::from(self.slow) / u64::from(self.all);
        slow_before(index + 1) > slow_before(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slow_are_spread_among_the_others() {
        let slow = |all, slow| {
            let readers = Readers { all, slow };
            (0..all)
                .filter(|&index| readers.is_slow(index))
                .collect::<Vec<_>>()
        };
        assert!(slow(10, 0).is_empty());
        assert_eq!(slow(10, 2), [4, 9]);
        assert_eq!(slow(3, 3), [0, 1, 2]);
        assert_eq!(slow(1_000_000, 1000).len(), 1000);
    }
}
