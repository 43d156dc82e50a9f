//! What a relay has forwarded, and the reply times of its server.

use std::time::Duration;

use hdrhistogram::Histogram;
use rustler::{Atom, Encoder, Env, Term};

use crate::kernel::clock::Nanos;
use crate::term::atoms;
use crate::value::handle::Side;

/// Significant digits of the histogram: times are within 6 %, and those above an hour count as an
/// hour. It grows with the range of times, up to 2.5 KiB.
const DIGITS: u8 = 1;
const LONGEST_NS: u64 = 3_600_000_000_000;

/// Number of times to collect before they go to the histogram, which is three cache misses away.
const RECENT: usize = 16;

/// Traffic from one side.
#[derive(Clone, Copy, Default)]
struct Count {
    bytes: u64,
    packets: u64,
}

/// The statistics of a relay. The left side is the client, the right side the server.
///
/// A reply time is measured as in tcprstat: from the last bytes of the client to the next bytes of
/// the server. That takes a clock reading per read (20 ns, compared with microseconds for the
/// system calls).
///
/// The order of fields matters: see [`Live`](super::live::Live).
#[repr(C)]
pub struct Statistics {
    /// When bytes last moved.
    moved: Nanos,
    /// When the client's last bytes came, if the server has not replied yet.
    asked: Option<Nanos>,
    from_left: Count,
    from_right: Count,
    first_byte: Option<Duration>,
    recent_count: usize,
    /// The last reply times in nanoseconds, not in the histogram yet.
    recent: [u64; RECENT],
    /// Reply times in nanoseconds.
    replies: Option<Box<Histogram<u32>>>,
    started: Nanos,
}

impl Statistics {
    /// Statistics of a relay that starts now.
    pub fn new(now: Nanos) -> Statistics {
        Statistics {
            started: now,
            moved: now,
            from_left: Count::default(),
            from_right: Count::default(),
            asked: None,
            first_byte: None,
            recent: [0; RECENT],
            recent_count: 0,
            replies: None,
        }
    }

    /// Counts a read of `n` bytes from a side. Returns the reply time in nanoseconds, if the read
    /// starts a reply.
    #[inline]
    pub fn read(&mut self, side: Side, n: usize, now: Nanos) -> Option<u64> {
        self.moved = now;
        let mut reply = None;
        let count = match side {
            Side::Left => {
                self.asked = Some(now);
                &mut self.from_left
            }
            Side::Right => {
                if let Some(asked) = self.asked.take() {
                    let took = now.nanoseconds_since(asked);
                    self.replied(took);
                    reply = Some(took);
                }
                if self.first_byte.is_none() {
                    self.first_byte = Some(now.since(self.started));
                }
                &mut self.from_right
            }
        };
        count.bytes += n as u64;
        count.packets += 1;
        reply
    }

    #[inline]
    fn replied(&mut self, nanoseconds: u64) {
        self.recent[self.recent_count] = nanoseconds;
        self.recent_count += 1;
        if self.recent_count == RECENT {
            let mut replies = self.replies.take();
            self.add_recent(&mut replies);
            self.replies = replies;
            self.recent_count = 0;
        }
    }

    fn add_recent(&self, replies: &mut Option<Box<Histogram<u32>>>) {
        if replies.is_none() {
            // Fails only for an unsupported number of digits.
            *replies = Histogram::new(DIGITS).ok().map(Box::new);
        }
        if let Some(replies) = replies {
            for &time in &self.recent[..self.recent_count] {
                // Fails only for values out of range, which a growing histogram does not have.
                let _ = replies.record(time.min(LONGEST_NS));
            }
        }
    }

    /// All reply times, if there are any.
    fn replies(&self) -> Option<Replies> {
        if self.replies.is_none() {
            return Replies::few(&self.recent[..self.recent_count]);
        }
        let mut replies = self.replies.clone();
        self.add_recent(&mut replies);
        replies.map(|replies| Replies::many(&replies))
    }

    /// Notes that waiting bytes were written.
    pub fn wrote(&mut self, now: Nanos) {
        self.moved = now;
    }

    /// When bytes last moved.
    pub fn moved(&self) -> Nanos {
        self.moved
    }

    /// The map for the owner, with the side that failed and the side whose direction ended first.
    pub fn encode<'a>(&self, env: Env<'a>, failed: Option<Side>, ended_first: Option<Side>) -> Term<'a> {
        let now = Nanos::now();
        let first_byte = match self.first_byte {
            Some(time) => micros(time).encode(env),
            None => atoms::undefined().encode(env),
        };
        let side = |side: Option<Side>| side.map_or_else(atoms::undefined, side_atom).encode(env);
        let pairs = [
            (atoms::a_to_b(), self.from_left.encode(env)),
            (atoms::b_to_a(), self.from_right.encode(env)),
            (atoms::duration_us(), micros(now.since(self.started)).encode(env)),
            (atoms::idle_us(), micros(now.since(self.moved)).encode(env)),
            (atoms::first_byte_us(), first_byte),
            (atoms::reply_us(), self.encode_replies(env)),
            (atoms::failed(), side(failed)),
            (atoms::ended_first(), side(ended_first)),
        ];
        map(env, &pairs)
    }

    fn encode_replies<'a>(&self, env: Env<'a>) -> Term<'a> {
        let Some(replies) = self.replies() else {
            return map(env, &[(atoms::count(), 0.encode(env))]);
        };
        let [p50, p90, p95, p99, p999] = replies.quantiles.map(|time| (time / 1000).encode(env));
        let pairs = [
            (atoms::count(), replies.count.encode(env)),
            (atoms::min(), (replies.min / 1000).encode(env)),
            (atoms::max(), (replies.max / 1000).encode(env)),
            (atoms::average(), (replies.average / 1000.0).encode(env)),
            (atoms::deviation(), (replies.deviation / 1000.0).encode(env)),
            (atoms::p50(), p50),
            (atoms::p90(), p90),
            (atoms::p95(), p95),
            (atoms::p99(), p99),
            (atoms::p999(), p999),
        ];
        map(env, &pairs)
    }
}

const QUANTILES: [f64; 5] = [0.5, 0.9, 0.95, 0.99, 0.999];

/// A summary of reply times, in nanoseconds.
#[derive(Debug)]
struct Replies {
    count: u64,
    min: u64,
    max: u64,
    average: f64,
    deviation: f64,
    quantiles: [u64; QUANTILES.len()],
}

impl Replies {
    /// Summarises a histogram.
    fn many(times: &Histogram<u32>) -> Replies {
        Replies {
            count: times.len(),
            min: times.min(),
            max: times.max(),
            average: times.mean(),
            deviation: times.stdev(),
            quantiles: QUANTILES.map(|quantile| times.value_at_quantile(quantile)),
        }
    }

    /// Summarises a few times without a histogram, whose creation takes longer than a short relay.
    fn few(times: &[u64]) -> Option<Replies> {
        let mut buffer = [0; RECENT];
        let times = {
            let sorted = &mut buffer[..times.len()];
            sorted.copy_from_slice(times);
            sorted.sort_unstable();
            &*sorted
        };
        let (&min, &max) = (times.first()?, times.last()?);
        let count = times.len() as f64;
        let average = times.iter().map(|&time| time as f64).sum::<f64>() / count;
        let variance = times.iter().map(|&time| (time as f64 - average).powi(2)).sum::<f64>() / count;
        let at = |quantile: f64| times[((quantile * count).ceil() as usize).clamp(1, times.len()) - 1];
        let quantiles = QUANTILES.map(at);
        Some(Replies { count: times.len() as u64, min, max, average, deviation: variance.sqrt(), quantiles })
    }
}

/// The users' name for a side.
fn side_atom(side: Side) -> Atom {
    match side {
        Side::Left => atoms::a(),
        Side::Right => atoms::b(),
    }
}

impl Encoder for Count {
    fn encode<'a>(&self, env: Env<'a>) -> Term<'a> {
        map(env, &[(atoms::bytes(), self.bytes.encode(env)), (atoms::packets(), self.packets.encode(env))])
    }
}

fn micros(duration: Duration) -> u64 {
    duration.as_micros() as u64
}

fn map<'a>(env: Env<'a>, pairs: &[(Atom, Term<'a>)]) -> Term<'a> {
    // Fails only for duplicate keys.
    Term::map_from_pairs(env, pairs).unwrap_or_else(|_| atoms::undefined().encode(env))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_is_timed_from_the_last_bytes_of_the_client_to_the_first_of_the_server() {
        let start = Nanos::now();
        let at = |ms: u64| start.after(ms * 1_000_000);
        let mut statistics = Statistics::new(start);
        let read = [(Side::Left, 10, 1), (Side::Left, 10, 5), (Side::Right, 3, 7), (Side::Right, 4, 9)]
            .map(|(side, n, ms)| statistics.read(side, n, at(ms)));
        assert_eq!(read, [None, None, Some(2_000_000), None]);
        let replies = statistics.replies().expect("one reply");
        assert_eq!(replies.count, 1);
        assert_eq!((replies.min, replies.max), (2_000_000, 2_000_000));
        assert_eq!(statistics.first_byte, Some(Duration::from_millis(7)));
        assert_eq!((statistics.from_left.bytes, statistics.from_left.packets), (20, 2));
        assert_eq!((statistics.from_right.bytes, statistics.from_right.packets), (7, 2));
        assert_eq!(statistics.moved(), at(9));
    }

    #[test]
    fn what_the_server_says_unasked_is_no_reply() {
        let start = Nanos::now();
        let mut statistics = Statistics::new(start);
        statistics.read(Side::Right, 3, start);
        assert!(statistics.replies().is_none());
    }

    #[test]
    fn a_histogram_stays_small() {
        let start = Nanos::now();
        let mut statistics = Statistics::new(start);
        for seconds in [0, 1, 100_000_000] {
            statistics.read(Side::Left, 1, start);
            statistics.read(Side::Right, 1, start.after(seconds * 1_000_000_000));
        }
        let mut replies = None;
        statistics.add_recent(&mut replies);
        let replies = replies.expect("a histogram");
        assert_eq!(replies.len(), 3);
        assert!(replies.distinct_values() <= 640);
    }

    #[test]
    fn few_replies_have_the_figures_of_many() {
        let start = Nanos::now();
        for count in 1..RECENT as u64 {
            let mut statistics = Statistics::new(start);
            for n in 1..=count {
                statistics.read(Side::Left, 1, start);
                statistics.read(Side::Right, 1, start.after(n * n * 1_000_000));
            }
            let few = statistics.replies().expect("replies");
            let mut histogram = None;
            statistics.add_recent(&mut histogram);
            let many = Replies::many(&histogram.expect("a histogram"));
            let close = |a: f64, b: f64| (a - b).abs() <= 0.07 * b.max(1.0);
            assert_eq!(few.count, many.count);
            assert!(close(few.min as f64, many.min as f64) && close(few.max as f64, many.max as f64));
            assert!(close(few.average, many.average), "{few:?} {many:?}");
            assert!((few.deviation - many.deviation).abs() <= 0.07 * many.max as f64, "{few:?} {many:?}");
            for (a, b) in few.quantiles.into_iter().zip(many.quantiles) {
                assert!(close(a as f64, b as f64), "{few:?} {many:?}");
            }
        }
    }
}
