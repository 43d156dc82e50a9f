//! Counters of a pollset since it was made, or since its process acquired it. They are always on.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};

/// Buckets of the histogram of events per poll: bucket `i` counts polls with 2^i to 2^(i+1)-1 events.
pub const BUCKETS: usize = 10;

/// The counters of one pollset. Relaxed atomics: they are only displayed, and order nothing.
/// Aligned to two cache lines of their own, since processors fetch them in pairs.
#[derive(Default)]
#[repr(align(128))]
pub struct Counters {
    pub polls: AtomicU64,
    pub empty_polls: AtomicU64,
    pub events: AtomicU64,
    /// Fewest and most events in a poll with any. The minimum is stored inverted, so that zero
    /// means none yet.
    events_min_inverted: AtomicU64,
    pub events_max: AtomicU64,
    pub events_log2: [AtomicU64; BUCKETS],
    pub sleeps: AtomicU64,
    pub asleep_ns: AtomicU64,
    /// Waits of the thread for more data of streams.
    pub gathers: AtomicU64,
    /// Wake-ups of the poller: by the thread, after an event of the kernel, and by processes.
    pub wakes_by_thread: AtomicU64,
    pub wakes_by_process: AtomicU64,
    /// Duration of polls with events, and of the time before each of them since the last poll,
    /// unless the poller slept. The second is the longest that an event waited.
    pub polling_ns: AtomicU64,
    pub between_ns: AtomicU64,
    pub reads: AtomicU64,
    pub read_bytes: AtomicU64,
    pub writes: AtomicU64,
    pub written_bytes: AtomicU64,
    pub short_writes: AtomicU64,
    /// Parts of files that were not in memory, and files that shrank while they were sent.
    pub file_waits: AtomicU64,
    pub files_cut: AtomicU64,
    pub accepts: AtomicU64,
    /// Requests for data made on this scheduler for sockets that another one polls.
    pub asked_away: AtomicU64,
    /// Sockets closed because of a panic.
    pub faults: AtomicU64,
    pub sockets: AtomicI64,
    pub moved_in: AtomicU64,
    pub moved_out: AtomicU64,
}

/// Adds to a counter.
pub fn add(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Relaxed);
}

/// Counts of one poll, which are added to the counters together: even an uncontended atomic costs
/// 5 ns.
#[derive(Default)]
pub struct Tally {
    pub reads: u64,
    pub read_bytes: u64,
    pub writes: u64,
    pub written_bytes: u64,
    pub short_writes: u64,
    /// Visits of splicing relays, and of sockets that fill large reads.
    pub bulk: usize,
    /// One of these sockets has a small receive buffer.
    pub narrow: bool,
}

impl Tally {
    /// Counts a read.
    pub fn read(&mut self, n: usize) {
        self.reads += 1;
        self.read_bytes += n as u64;
    }

    /// Counts a write of `n` bytes out of `wanted`.
    pub fn wrote(&mut self, n: usize, wanted: usize) {
        self.writes += 1;
        self.written_bytes += n as u64;
        self.short_writes += u64::from(n < wanted);
    }

    /// Adds the counts to the counters.
    pub fn add_to(&self, counters: &Counters) {
        if self.reads == 0 && self.writes == 0 {
            return;
        }
        add(&counters.reads, self.reads);
        add(&counters.read_bytes, self.read_bytes);
        add(&counters.writes, self.writes);
        add(&counters.written_bytes, self.written_bytes);
        add(&counters.short_writes, self.short_writes);
    }
}

impl Counters {
    /// Resets the counters for a new poller, except the number of sockets and the faults.
    pub fn reset(&self) {
        let Counters {
            polls,
            empty_polls,
            events,
            events_min_inverted,
            events_max,
            events_log2,
            sleeps,
            asleep_ns,
            gathers,
            wakes_by_thread,
            wakes_by_process,
            polling_ns,
            between_ns,
            reads,
            read_bytes,
            writes,
            written_bytes,
            short_writes,
            file_waits,
            files_cut,
            accepts,
            asked_away,
            sockets: _,
            moved_in,
            moved_out,
            faults: _,
        } = self;
        let all = [
            polls,
            empty_polls,
            events,
            events_min_inverted,
            events_max,
            sleeps,
            asleep_ns,
            gathers,
            wakes_by_thread,
            wakes_by_process,
            polling_ns,
            between_ns,
            reads,
            read_bytes,
            writes,
            written_bytes,
            short_writes,
            file_waits,
            files_cut,
            accepts,
            asked_away,
            moved_in,
            moved_out,
        ];
        for counter in all.into_iter().chain(events_log2) {
            counter.store(0, Relaxed);
        }
    }

    /// Counts a read.
    pub fn read(&self, n: usize) {
        add(&self.reads, 1);
        add(&self.read_bytes, n as u64);
    }

    /// Counts a write of `n` bytes out of `wanted`.
    pub fn wrote(&self, n: usize, wanted: usize) {
        add(&self.writes, 1);
        add(&self.written_bytes, n as u64);
        if n < wanted {
            add(&self.short_writes, 1);
        }
    }

    /// Counts a poll with `events` events. Only the poller calls it, so the minimum and maximum
    /// need no loop.
    pub fn polled(&self, events: u64) {
        add(&self.polls, 1);
        if events == 0 {
            add(&self.empty_polls, 1);
            return;
        }
        add(&self.events, events);
        if events > self.events_max.load(Relaxed) {
            self.events_max.store(events, Relaxed);
        }
        if u64::MAX - events > self.events_min_inverted.load(Relaxed) {
            self.events_min_inverted.store(u64::MAX - events, Relaxed);
        }
        let bucket = (events.ilog2() as usize).min(BUCKETS - 1);
        add(&self.events_log2[bucket], 1);
    }

    /// Fewest events in a poll with any; zero if there was none.
    pub fn events_min(&self) -> u64 {
        match self.events_min_inverted.load(Relaxed) {
            0 => 0,
            inverted => u64::MAX - inverted,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn polls_fall_into_their_buckets() {
        let counters = Counters::default();
        for events in [0, 1, 2, 3, 4, 255, 256, 100_000] {
            counters.polled(events);
        }
        let buckets: Vec<u64> = counters.events_log2.iter().map(|b| b.load(Relaxed)).collect();
        assert_eq!(buckets, [1, 2, 1, 0, 0, 0, 0, 1, 1, 1]);
        assert_eq!(counters.polls.load(Relaxed), 8);
        assert_eq!(counters.empty_polls.load(Relaxed), 1);
        assert_eq!((counters.events_min(), counters.events_max.load(Relaxed)), (1, 100_000));
    }

    #[test]
    fn no_events_have_no_minimum() {
        let counters = Counters::default();
        counters.polled(0);
        assert_eq!(counters.events_min(), 0);
    }
}
