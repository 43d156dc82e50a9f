//! Times from request to reply, as histograms that only grow: what happened in a second is the difference of two looks.

use std::sync::OnceLock;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};

use super::shared::Shared;

/// How many of them measure. Each read from a socket looks here first: without one that does it ends there.
pub static WANTED: Shared<AtomicU32> = Shared::new(AtomicU32::new(0));

/// Whether any measures.
#[inline]
pub fn is_wanted() -> bool {
    WANTED.load(Relaxed) != 0
}

/// Times are told apart to 128 ns, and from 4 µs on to one part in 32 of themselves.
const UNIT: u32 = 7;
const PARTS: u32 = 5;

/// Those from 2^37 ns on, 137 seconds, count as the longest.
const LONGEST: u64 = (1 << 37) - 1;

const BUCKETS: usize = bucket(LONGEST) + 1;

/// Where a time is counted.
const fn bucket(nanoseconds: u64) -> usize {
    let time = (if nanoseconds > LONGEST { LONGEST } else { nanoseconds }) >> UNIT;
    if time < 1 << PARTS {
        return time as usize;
    }
    let halvings = time.ilog2() - PARTS;
    ((halvings as usize) << PARTS) + (time >> halvings) as usize
}

/// The time in the middle of a bucket, in nanoseconds.
const fn middle(bucket: usize) -> u64 {
    let halvings = (bucket >> PARTS).saturating_sub(1);
    let lowest = ((bucket - (halvings << PARTS)) as u64) << halvings << UNIT;
    lowest + (1 << (UNIT as usize + halvings)) / 2
}

/// A histogram of times.
pub struct Times {
    buckets: [AtomicU64; BUCKETS],
    sum: AtomicU64,
}

impl Times {
    fn new() -> Times {
        Times { buckets: [const { AtomicU64::new(0) }; BUCKETS], sum: AtomicU64::new(0) }
    }

    /// Counts a time. Who sees that it was counted finds it in the sum.
    #[inline]
    pub fn count(&self, nanoseconds: u64) {
        self.sum.fetch_add(nanoseconds, Relaxed);
        self.buckets[bucket(nanoseconds)].fetch_add(1, Release);
    }
}

/// So many histograms are filled side by side, by pollset: schedulers do not wait for each other's lines of the cache.
const SHARDS: usize = 16;

/// The times of replies: of a listener, or of all relays that were started with it. It takes 110 KiB at most, once it
/// has measured.
pub struct Latency {
    on: AtomicBool,
    shards: [OnceLock<Box<Times>>; SHARDS],
}

/// A look at all times: their sum in nanoseconds, and how many there were of each length that there was.
#[derive(Debug, PartialEq, Eq)]
pub struct Seen {
    pub sum: u64,
    pub times: Vec<(u64, u64)>,
}

impl Latency {
    pub fn new(on: bool) -> Latency {
        let latency = Latency { on: AtomicBool::new(false), shards: [const { OnceLock::new() }; SHARDS] };
        latency.set(on);
        latency
    }

    /// Begins to measure, or ends it. What was measured stays.
    pub fn set(&self, on: bool) {
        match (self.on.swap(on, Relaxed), on) {
            (false, true) => WANTED.fetch_add(1, Relaxed),
            (true, false) => WANTED.fetch_sub(1, Relaxed),
            _ => 0,
        };
    }

    pub fn is_on(&self) -> bool {
        self.on.load(Relaxed)
    }

    /// Where times of a pollset go, if it measures.
    pub fn times(&self, pollset: u16) -> Option<&Times> {
        let shard = &self.shards[usize::from(pollset) % SHARDS];
        self.is_on().then(|| &**shard.get_or_init(|| Box::new(Times::new())))
    }

    /// All that was measured. Times that are measured meanwhile may be in the sum and not be counted yet.
    pub fn seen(&self) -> Seen {
        let shards = || self.shards.iter().filter_map(OnceLock::get);
        let times = (0..BUCKETS).filter_map(|bucket| {
            let count = shards().map(|times| times.buckets[bucket].load(Acquire)).sum();
            (count > 0).then_some((middle(bucket), count))
        });
        Seen { times: times.collect(), sum: shards().map(|times| times.sum.load(Relaxed)).sum() }
    }

    /// How many there were, and their sum in nanoseconds.
    pub fn totals(&self) -> (u64, u64) {
        let seen = self.seen();
        (seen.times.iter().map(|(_, count)| count).sum(), seen.sum)
    }
}

impl Drop for Latency {
    fn drop(&mut self) {
        self.set(false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_is_within_a_part_in_32_of_each_of_its_times() {
        for shift in 0..37 {
            for part in 0..64u64 {
                let time = (1 << shift) + ((part << shift) >> 6);
                let middle = middle(bucket(time));
                assert!(middle.abs_diff(time) <= 64 + time / 64, "{time} {middle}");
            }
        }
    }

    #[test]
    fn buckets_are_in_the_order_of_their_times() {
        assert!((1..BUCKETS).all(|bucket| middle(bucket - 1) < middle(bucket)));
        assert!((0..BUCKETS).all(|at| bucket(middle(at)) == at));
    }

    #[test]
    fn times_beyond_the_longest_count_as_that() {
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
        assert_eq!(bucket(LONGEST), BUCKETS - 1);
        assert_eq!(bucket(0), 0);
    }

    #[test]
    fn a_time_that_is_counted_is_in_the_sum() {
        const EACH: u64 = 1_000_000;
        let (latency, begun) = (Latency::new(true), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..200_000 {
                    latency.times(1).expect("it measures").count(EACH);
                    begun.store(true, Relaxed);
                }
            });
            while !begun.load(Relaxed) {
                std::thread::yield_now();
            }
            for _ in 0..500 {
                let (count, sum) = latency.totals();
                assert!(sum >= count * EACH, "{count} {sum}");
            }
        });
    }

    #[test]
    fn what_was_measured_stays_when_measuring_ends() {
        let latency = Latency::new(true);
        assert!(is_wanted());
        for pollset in 0..100 {
            latency.times(pollset).expect("it measures").count(1_000_000);
        }
        latency.set(false);
        assert!(latency.times(1).is_none());
        let Seen { sum, times } = latency.seen();
        assert_eq!((sum, times.len(), times[0].1), (100_000_000, 1, 100));
        assert!(times[0].0.abs_diff(1_000_000) <= 1_000_000 / 64);
        assert_eq!(latency.totals(), (100, 100_000_000));
    }
}
