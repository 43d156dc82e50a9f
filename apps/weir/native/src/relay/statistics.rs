//! What a relay has carried, and how fast the server answered.

use std::time::Duration;

use hdrhistogram::Histogram;
use rustler::{Atom, Encoder, Env, Term};

use crate::kernel::clock::Nanos;
use crate::term::atoms;
use crate::value::handle::Side;

/// One significant digit: within 6 %, and 2.5 KiB at most for times up to an hour, beyond which they count as that. The
/// histogram grows with the times that it has seen.
const DIGITS: u8 = 1;
const LONGEST_NS: u64 = 3_600_000_000_000;

/// Times that are kept before they go to the histogram together: it is three misses of the cache away.
const RECENT: usize = 16;

/// What has come from one side.
#[derive(Clone, Copy, Default)]
struct Count {
    bytes: u64,
    packets: u64,
}

/// The statistics of a relay. The left side is the client, which asks, and the right one the server, which replies.
///
/// The time of a reply is measured as tcprstat does: from the last bytes of the client to the first ones of the server
/// after them. It takes a look at the clock for each read (20 ns beside the microseconds of its system calls).
///
/// In this order: see [`Live`](super::live::Live).
#[repr(C)]
pub struct Statistics {
    /// When bytes have last moved.
    moved: Nanos,
    /// The client's last bytes, if the server has not replied to them.
    asked: Option<Nanos>,
    from_left: Count,
    from_right: Count,
    first_byte: Option<Duration>,
    recent_count: usize,
    /// The last times, in nanoseconds, that are not in the histogram yet.
    recent: [u64; RECENT],
    /// Nanoseconds.
    replies: Option<Box<Histogram<u32>>>,
    started: Nanos,
}

impl Statistics {
    /// Those of a relay that begins now.
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

    /// Notes a read of `n` bytes from a side. Returns the time of a reply, in nanoseconds, if it is the beginning of one.
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
            // It only fails for more digits than there are.
            *replies = Histogram::new(DIGITS).ok().map(Box::new);
        }
        if let Some(replies) = replies {
            for &time in &self.recent[..self.recent_count] {
                // It only fails for values that a histogram which grows does not have.
                let _ = replies.record(time.min(LONGEST_NS));
            }
        }
    }

    /// All times, if there are any.
    fn replies(&self) -> Option<Replies> {
        if self.replies.is_none() {
            return Replies::few(&self.recent[..self.recent_count]);
        }
        let mut replies = self.replies.clone();
        self.add_recent(&mut replies);
        replies.map(|replies| Replies::many(&replies))
    }

    /// Notes that bytes were written which had waited.
    pub fn wrote(&mut self, now: Nanos) {
        self.moved = now;
    }

    /// When bytes have last moved.
    pub fn moved(&self) -> Nanos {
        self.moved
    }

    /// The map that the owner gets, with the side that has failed, and the one that has ended first.
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

/// The times of replies in a few figures, in nanoseconds.
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
    /// Of a histogram.
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

    /// Of a few times: most relays are short, and a histogram takes longer than their bytes.
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

/// What users call a side.
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
    // It only fails for keys that are there twice.
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
