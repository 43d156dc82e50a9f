//! Histograms of latencies in nanoseconds, by hdrhistogram.

use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer, Serializer, V2DeflateSerializer};

/// Longer latencies count as this: an hour.
pub const LONGEST: u64 = 3_600_000_000_000;

/// Significant decimal digits.
const DIGITS: u8 = 3;

/// Most bytes of a serialised histogram. One with every counter in use has about half of that.
const LONGEST_SERIALISED: usize = 1024 * 1024;

/// A histogram of latencies from 0 to [`LONGEST`].
#[derive(Debug, Clone)]
pub struct Latencies(Histogram<u64>);

/// The count, extremes and moments of the latencies.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Summary {
    pub count: u64,
    pub min: u64,
    pub max: u64,
    pub mean: f64,
    pub stdev: f64,
}

/// The bytes are not a serialised histogram of latencies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotLatencies;

impl Latencies {
    pub fn new() -> Self {
        // It grows as needed: most never count an hour.
        Self(Histogram::new(DIGITS).expect("three is a number of digits that a histogram can have"))
    }

    pub fn record(&mut self, nanoseconds: u64) {
        self.0.record(nanoseconds.min(LONGEST)).expect("a histogram that grows takes any value");
    }

    pub fn merge(&mut self, other: &Self) {
        // Both have the same precision, and this one grows.
        self.0.add(&other.0).expect("a histogram that grows takes any of the same precision");
    }

    /// Returns the value at a percentile, or 0 if the histogram is empty.
    pub fn percentile(&self, percentile: f64) -> u64 {
        // The upper end of a bucket may be above the maximum.
        self.0.value_at_percentile(percentile).min(self.0.max())
    }

    pub fn summary(&self) -> Summary {
        Summary {
            count: self.0.len(),
            min: if self.0.is_empty() { 0 } else { self.0.min() },
            max: self.0.max(),
            mean: self.0.mean(),
            stdev: self.0.stdev(),
        }
    }

    /// Returns HdrHistogram's V2 encoding, compressed.
    pub fn serialise(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        V2DeflateSerializer::new().serialize(&self.0, &mut bytes).expect("a vector takes all bytes");
        bytes
    }

    pub fn deserialise(bytes: &[u8]) -> Result<Self, NotLatencies> {
        // Check the length after the cookie: bytes that are cut off near the end would still
        // decompress.
        let length = bytes.get(4..8).and_then(|length| length.try_into().ok()).map(u32::from_be_bytes);
        if bytes.len() > LONGEST_SERIALISED || length.map(|length| length as usize + 8) != Some(bytes.len()) {
            return Err(NotLatencies);
        }
        let mut input = bytes;
        let mut histogram: Histogram<u64> = Deserializer::new().deserialize(&mut input).map_err(|_| NotLatencies)?;
        if histogram.sigfig() != DIGITS || histogram.max() > LONGEST + LONGEST / 1000 {
            return Err(NotLatencies);
        }
        histogram.auto(true);
        Ok(Self(histogram))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: impl IntoIterator<Item = u64>) -> Latencies {
        let mut latencies = Latencies::new();
        values.into_iter().for_each(|value| latencies.record(value));
        latencies
    }

    #[test]
    fn percentiles_are_within_a_thousandth() {
        let latencies = of((1..=100_000).map(|n| n * 997));
        for percentile in [1.0, 50.0, 90.0, 99.0, 99.9, 99.999, 100.0] {
            let exact = (percentile / 100.0 * 100_000.0_f64).ceil() * 997.0;
            let value = latencies.percentile(percentile) as f64;
            assert!((value / exact - 1.0).abs() <= 0.001, "{percentile}: {value} {exact}");
        }
    }

    #[test]
    fn nothing_is_zero() {
        let latencies = Latencies::new();
        assert_eq!(latencies.percentile(99.0), 0);
        assert_eq!(latencies.summary(), Summary { count: 0, min: 0, max: 0, mean: 0.0, stdev: 0.0 });
    }

    #[test]
    fn a_latency_beyond_the_bounds_is_kept_as_the_longest() {
        let latencies = of([u64::MAX]);
        assert!(latencies.summary().max.abs_diff(LONGEST) < LONGEST / 1000);
    }

    #[test]
    fn parts_merge_to_the_whole_without_loss() {
        let values: Vec<u64> = (0..10_000).map(|n| n * n * 31).collect();
        let whole = of(values.iter().copied());
        let mut merged = Latencies::new();
        for part in values.chunks(777) {
            let bytes = of(part.iter().copied()).serialise();
            merged.merge(&Latencies::deserialise(&bytes).expect("what was serialised"));
        }
        assert_eq!(merged.summary(), whole.summary());
        for permille in 0..=1000 {
            let percentile = f64::from(permille) / 10.0;
            assert_eq!(merged.percentile(percentile), whole.percentile(percentile));
        }
    }

    #[test]
    fn other_bytes_are_refused() {
        let bytes = of(1..1000).serialise();
        for length in 0..bytes.len() {
            assert!(Latencies::deserialise(&bytes[..length]).is_err(), "{length}");
        }
        assert!(Latencies::deserialise(&[bytes.as_slice(), b"x"].concat()).is_err());
        let mut coarse = Histogram::<u64>::new(2).expect("two digits");
        coarse.record(5).expect("it grows");
        let mut other = Vec::new();
        V2DeflateSerializer::new().serialize(&coarse, &mut other).expect("a vector");
        assert!(Latencies::deserialise(&other).is_err());
    }
}
