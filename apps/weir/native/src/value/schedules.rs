//! Scheduling times, as histograms for each scheduler: how long processes run, and how long it
//! takes from the end of one turn to the start of the next. Also counts migrations between
//! schedulers. Each measurement starts from zero.

use std::array::from_fn;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};

/// Bucket `i` counts times of 2^i to 2^(i+1)-1 nanoseconds; the last one counts nine minutes or
/// more.
pub const BUCKETS: usize = 40;

/// Size for the VM's schedulers, at most 1024, numbered from 1.
const SCHEDULERS: usize = 1025;

/// Bits of a scheduler number.
const SCHEDULER_BITS: u32 = 11;

/// Number of processes that are tracked at a time. If two share an entry, each replaces the other.
const PLACES: usize = 1 << 14;

/// Times by powers of two.
pub struct Histogram([AtomicU64; BUCKETS]);

impl Histogram {
    fn new() -> Histogram {
        Histogram([const { AtomicU64::new(0) }; BUCKETS])
    }

    /// Counts a time. Only one thread may call this.
    pub fn count(&self, nanoseconds: u64) {
        let bucket = &self.0[((nanoseconds | 1).ilog2() as usize).min(BUCKETS - 1)];
        bucket.store(bucket.load(Relaxed) + 1, Relaxed);
    }

    /// The counts, shortest times first.
    pub fn counts(&self) -> [u64; BUCKETS] {
        from_fn(|bucket| self.0[bucket].load(Relaxed))
    }

    fn clear(&self) {
        self.0.iter().for_each(|bucket| bucket.store(0, Relaxed));
    }
}

/// Measurements of a scheduler.
pub struct Turns {
    /// Time from the end of a turn to the start of the next, of any process.
    pub between: Histogram,
    /// Time from the start of a turn to its end.
    pub running: Histogram,
    migrations: AtomicU64,
}

impl Turns {
    /// Turns here of processes whose last turn was on another scheduler.
    pub fn migrations(&self) -> u64 {
        self.migrations.load(Relaxed)
    }
}

/// Measurements of all schedulers; one measurement runs at a time.
pub struct Schedules {
    /// The number of the running measurement; zero if there is none.
    current: AtomicU32,
    last: AtomicU32,
    /// When it ends, even if its process is dead, in nanoseconds of the monotonic clock.
    until: AtomicU64,
    schedulers: [OnceLock<Box<Turns>>; SCHEDULERS],
    /// Processes, each with the scheduler of its last turn.
    places: [AtomicU64; PLACES],
}

impl Schedules {
    pub const fn new() -> Schedules {
        Schedules {
            current: AtomicU32::new(0),
            last: AtomicU32::new(0),
            until: AtomicU64::new(0),
            schedulers: [const { OnceLock::new() }; SCHEDULERS],
            places: [const { AtomicU64::new(0) }; PLACES],
        }
    }

    /// Starts a measurement and returns its number. `None` while another one is running.
    pub fn begin(&self, now: u64, until: u64) -> Option<u32> {
        let current = self.current.load(SeqCst);
        let ends = self.until.load(SeqCst);
        if current != 0 && now < ends {
            return None;
        }
        // Before the number: a caller that sees the new number must not see the old end.
        self.until.compare_exchange(ends, until, SeqCst, SeqCst).ok()?;
        // A small integer in Erlang, and never zero.
        let number = (self.last.fetch_add(1, SeqCst) % (u32::MAX >> 6)) + 1;
        self.current.compare_exchange(current, number, SeqCst, SeqCst).ok()?;
        for turns in self.schedulers.iter().filter_map(OnceLock::get) {
            turns.between.clear();
            turns.running.clear();
            turns.migrations.store(0, Relaxed);
        }
        self.places.iter().for_each(|place| place.store(0, Relaxed));
        Some(number)
    }

    /// Whether this measurement is running.
    pub fn goes_on(&self, number: u32, now: u64) -> bool {
        self.current.load(Relaxed) == number && now < self.until.load(Relaxed)
    }

    /// The measurements of a scheduler; numbers start at 1.
    pub fn turns(&self, scheduler: usize) -> Option<&Turns> {
        let place = self.schedulers.get(scheduler)?;
        Some(place.get_or_init(|| {
            Box::new(Turns { between: Histogram::new(), running: Histogram::new(), migrations: AtomicU64::new(0) })
        }))
    }

    /// Notes that a process starts to run on a scheduler, with its `turns`. The lowest four bits
    /// are the same for all processes. Only the thread of the scheduler may call this.
    pub fn runs(&self, process: u64, scheduler: usize, turns: &Turns) {
        let place = &self.places[(process >> 4) as usize % PLACES];
        let before = place.load(Relaxed);
        let now = process << SCHEDULER_BITS | scheduler as u64;
        if before != now {
            place.store(now, Relaxed);
            if before >> SCHEDULER_BITS == now >> SCHEDULER_BITS {
                turns.migrations.store(turns.migrations() + 1, Relaxed);
            }
        }
    }

    /// Ends a measurement. Returns the schedulers that took part, with their results; `None` if
    /// another one is running by now.
    pub fn end(&self, number: u32) -> Option<Vec<(usize, &Turns)>> {
        self.current.compare_exchange(number, 0, SeqCst, SeqCst).ok()?;
        let known = self.schedulers.iter().enumerate();
        Some(known.filter_map(|(scheduler, turns)| Some((scheduler, &**turns.get()?))).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_count_by_powers_of_two() {
        let histogram = Histogram::new();
        for time in [0, 1, 2, 3, 4, 1023, 1024, u64::MAX] {
            histogram.count(time);
        }
        let counts = histogram.counts();
        assert_eq!((counts[0], counts[1], counts[2], counts[9], counts[10], counts[BUCKETS - 1]), (2, 2, 1, 1, 1, 1));
        assert_eq!(counts.iter().sum::<u64>(), 8);
    }

    #[test]
    fn a_process_that_comes_from_another_scheduler_is_counted_there() {
        let schedules = Box::new(Schedules::new());
        let session = schedules.begin(0, 100).expect("nobody measures");
        let [first, second] = [1, 2].map(|scheduler| schedules.turns(scheduler).expect("there is one"));
        let [one, other] = [0x10_003, 0x20_003];
        let turns = [(one, 1, first), (other, 2, second), (one, 1, first), (one, 2, second), (other, 2, second)];
        for (process, scheduler, turns) in turns {
            schedules.runs(process, scheduler, turns);
        }
        assert_eq!((first.migrations(), second.migrations()), (0, 1));
        // Another process has taken its entry, so its last scheduler is unknown.
        schedules.runs(one + 16 * PLACES as u64, 1, first);
        schedules.runs(one, 1, first);
        assert_eq!(first.migrations(), 0);
        assert!(schedules.end(session).is_some());
        schedules.begin(0, 100).expect("nobody measures");
        schedules.runs(other, 1, first);
        assert_eq!((first.migrations(), second.migrations()), (0, 0));
    }

    #[test]
    fn one_measures_at_a_time_and_no_longer_than_it_said() {
        let schedules = Schedules::new();
        let first = schedules.begin(0, 100).expect("nobody measures");
        assert!(schedules.goes_on(first, 99) && !schedules.goes_on(first, 100) && !schedules.goes_on(first + 1, 99));
        assert_eq!(schedules.begin(99, 200), None);
        schedules.turns(1).expect("there is one").running.count(5);
        let second = schedules.begin(100, 200).expect("the time is over");
        assert!(schedules.end(first).is_none());
        assert!(!schedules.goes_on(first, 150));
        let turns = schedules.end(second).expect("it goes on");
        assert_eq!((turns.len(), turns[0].0, turns[0].1.running.counts().iter().sum::<u64>()), (1, 1, 0));
        assert!(schedules.end(second).is_none());
        assert!(schedules.begin(110, 200).is_some());
    }
}
