//! The moments at which an open loop sends, and the connections that it sends on.

use crate::clock::SECOND;

/// The moments of a Poisson process, the same in each run.
#[derive(Debug)]
pub struct Arrivals {
    /// Mean nanoseconds between two moments.
    interval: f64,
    next: u64,
    random: SplitMix64,
}

/// The SplitMix64 generator of Steele, Lea and Flood: small, and good enough to draw connections.
#[derive(Debug)]
struct SplitMix64(u64);

impl Arrivals {
    /// A process with this rate, whose first moment is `first`.
    pub fn new(per_second: u64, first: u64) -> Self {
        Self {
            interval: SECOND as f64 / per_second as f64,
            next: first,
            random: SplitMix64(per_second),
        }
    }

    /// The next moment.
    #[inline]
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Sets the next moment.
    pub fn start_at(&mut self, moment: u64) {
        self.next = moment;
    }

    /// A number below `limit` for the next moment.
    #[inline]
    pub fn draw(&mut self, limit: u32) -> u32 {
        self.random.below(limit)
    }

    /// Advances to the next moment.
    #[inline]
    pub fn advance(&mut self) {
        // The gaps of a Poisson process are distributed exponentially; 1 - x is never 0.
        let wait = -(1.0 - self.random.fraction()).ln() * self.interval;
        self.next += wait as u64;
    }
}

impl SplitMix64 {
    #[inline]
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number from 0 up to, but not including, 1.
    #[inline]
    fn fraction(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    #[inline]
    fn below(&mut self, limit: u32) -> u32 {
        ((u128::from(self.next()) * u128::from(limit)) >> 64) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrivals_come_at_the_rate_and_at_random() {
        let mut arrivals = Arrivals::new(1_000_000, 0);
        let mut gaps = Vec::new();
        for _ in 0..100_000 {
            let before = arrivals.next;
            arrivals.advance();
            gaps.push(arrivals.next - before);
        }
        let mean = arrivals.next as f64 / gaps.len() as f64;
        assert!((mean / 1000.0 - 1.0).abs() < 0.02, "{mean}");
        // In an exponential distribution, 63 % are below the mean.
        let below = gaps.iter().filter(|&&gap| gap < 1000).count();
        assert!((62_000..64_500).contains(&below), "{below}");
    }

    #[test]
    fn every_connection_is_drawn() {
        let mut random = SplitMix64(7);
        let mut drawn = [0; 10];
        for _ in 0..10_000 {
            drawn[random.below(10) as usize] += 1;
        }
        assert!(
            drawn.iter().all(|count| (850..1150).contains(count)),
            "{drawn:?}"
        );
    }
}
