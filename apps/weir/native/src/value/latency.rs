//! Reply times as histograms that only grow. The difference of two readings is what happened in
//! between.

use std::sync::OnceLock;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};

use super::shared::Shared;

/// Number of measurements that are on. Each read of a socket checks this first, and does nothing
/// more if it is zero.
pub static WANTED: Shared<AtomicU32> = Shared::new(AtomicU32::new(0));

/// Whether any measurement is on.
#[inline]
pub fn is_wanted() -> bool {
    WANTED.load(Relaxed) != 0
}

/// Resolution: 128 ns below 4 µs, and 1/32 of the value above.
const UNIT: u32 = 7;
const PARTS: u32 = 5;

/// Times from 2^37 ns (137 seconds) on count as this.
const LONGEST: u64 = (1 << 37) - 1;

const BUCKETS: usize = bucket(LONGEST) + 1;

/// The bucket of a time.
const fn bucket(nanoseconds: u64) -> usize {
    let time = (if nanoseconds > LONGEST { LONGEST } else { nanoseconds }) >> UNIT;
    if time < 1 << PARTS {
        return time as usize;
    }
    let halvings = time.ilog2() - PARTS;
    ((halvings as usize) << PARTS) + (time >> halvings) as usize
}

/// The middle of a bucket, in nanoseconds.
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

    /// Counts a time. A reader that sees its count also sees it in the sum.
    #[inline]
    pub fn count(&self, nanoseconds: u64) {
        self.sum.fetch_add(nanoseconds, Relaxed);
        self.buckets[bucket(nanoseconds)].fetch_add(1, Release);
    }
}

/// Number of histograms, chosen by pollset, so that schedulers do not share cache lines.
const SHARDS: usize = 16;

/// Reply times of a listener, or of all relays started with this. Takes up to 110 KiB when it
/// measures.
pub struct Latency {
    on: AtomicBool,
    shards: [OnceLock<Box<Times>>; SHARDS],
}

/// A reading: the sum in nanoseconds, and the number of replies for each time that occurred.
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

    /// Turns the measurement on or off. Earlier results stay.
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

    /// The histogram of a pollset, if the measurement is on.
    pub fn times(&self, pollset: u16) -> Option<&Times> {
        let shard = &self.shards[usize::from(pollset) % SHARDS];
        self.is_on().then(|| &**shard.get_or_init(|| Box::new(Times::new())))
    }

    /// All results. The sum may include times that are just being counted.
    pub fn seen(&self) -> Seen {
        let shards = || self.shards.iter().filter_map(OnceLock::get);
        let times = (0..BUCKETS).filter_map(|bucket| {
            let count = shards().map(|times| times.buckets[bucket].load(Acquire)).sum();
            (count > 0).then_some((middle(bucket), count))
        });
        Seen { times: times.collect(), sum: shards().map(|times| times.sum.load(Relaxed)).sum() }
    }

    /// The number of replies, and the sum of their times in nanoseconds.
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
