//! Counters of a run.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use rustix::io::Errno;

use crate::clock::SECOND;

/// The longest latency that the histogram distinguishes.
const LONGEST: u64 = 600 * SECOND;

/// Why a connection or a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The server ended the connection.
    Closed,
    /// The connection was reset.
    Reset,
    /// No server listens.
    Refused,
    /// No reply or no connection in time.
    Timeout,
    /// The received bytes differ from those that were sent.
    Mismatch,
    /// The bytes are not an HTTP response that the driver can parse.
    BadResponse,
    /// An HTTP response with a status other than 2xx.
    Status,
    /// A TLS error, or the server refused the handshake.
    Tls,
    /// Another error of the system.
    System(Errno),
}

impl Fault {
    /// The name under which the report counts it.
    pub fn kind(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Reset => "reset",
            Self::Refused => "refused",
            Self::Timeout => "timeout",
            Self::Mismatch => "mismatch",
            Self::BadResponse => "bad_response",
            Self::Status => "status",
            Self::Tls => "tls",
            Self::System(_) => "system",
        }
    }
}

impl From<Errno> for Fault {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::CONNRESET | Errno::PIPE => Self::Reset,
            Errno::CONNREFUSED => Self::Refused,
            Errno::TIMEDOUT => Self::Timeout,
            errno => Self::System(errno),
        }
    }
}

/// Latencies, counts and errors. Latencies and counts are kept for the measured window only,
/// errors from the first connection on: connections that were lost before the window count, too.
#[derive(Debug)]
pub struct Measurement {
    is_recording: bool,
    latency: Histogram<u32>,
    completed: u64,
    bytes: u64,
    errors: BTreeMap<&'static str, u64>,
}

impl Measurement {
    /// Nothing counted, not recording.
    pub fn new() -> Self {
        Self {
            is_recording: false,
            latency: Histogram::new_with_bounds(1, LONGEST, 3)
                .expect("1 to 600 s with 3 digits are bounds that a histogram can have"),
            completed: 0,
            bytes: 0,
            errors: BTreeMap::new(),
        }
    }

    /// Opens or closes the measured window.
    pub fn record(&mut self, is_recording: bool) {
        self.is_recording = is_recording;
    }

    /// Whether the window is open.
    pub fn is_recording(&self) -> bool {
        self.is_recording
    }

    /// Counts a request and the nanoseconds it took.
    #[inline]
    pub fn completed_in(&mut self, nanoseconds: u64) {
        if self.is_recording {
            self.completed += 1;
            self.latency.saturating_record(nanoseconds);
        }
    }

    /// Counts messages without a latency: the server sends them unasked.
    #[inline]
    pub fn completed(&mut self, count: u64) {
        if self.is_recording {
            self.completed += count;
        }
    }

    /// Counts bytes received or, by a command that only sends, bytes sent.
    #[inline]
    pub fn transferred(&mut self, bytes: usize) {
        if self.is_recording {
            self.bytes += bytes as u64;
        }
    }

    /// Counts an error.
    pub fn failed(&mut self, fault: Fault) {
        *self.errors.entry(fault.kind()).or_default() += 1;
    }

    /// Requests, messages or ticks in the window so far.
    pub fn count(&self) -> u64 {
        self.completed
    }

    /// Bytes transferred in the window so far.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Latencies in nanoseconds.
    pub fn latency(&self) -> &Histogram<u32> {
        &self.latency
    }

    /// Errors by kind.
    pub fn errors(&self) -> &BTreeMap<&'static str, u64> {
        &self.errors
    }
}

/// Errors by kind, as text for people.
pub fn errors_in_words(errors: &BTreeMap<&'static str, u64>) -> String {
    let kinds: Vec<_> = errors
        .iter()
        .map(|(kind, count)| format!("{kind} {count}"))
        .collect();
    if kinds.is_empty() {
        "no reply came in the measured window".to_string()
    } else {
        kinds.join(", ")
    }
}

impl Default for Measurement {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_window_counts_but_errors_always_do() {
        let mut measurement = Measurement::new();
        measurement.completed_in(5);
        measurement.transferred(10);
        measurement.failed(Fault::Closed);
        assert_eq!((measurement.count(), measurement.bytes()), (0, 0));
        measurement.record(true);
        measurement.completed_in(5);
        measurement.completed(2);
        measurement.transferred(10);
        measurement.failed(Fault::Closed);
        assert_eq!((measurement.count(), measurement.bytes()), (3, 10));
        assert_eq!(measurement.latency().len(), 1);
        assert_eq!(measurement.errors()["closed"], 2);
        measurement.failed(Fault::Timeout);
        assert_eq!(errors_in_words(measurement.errors()), "closed 2, timeout 1");
    }

    #[test]
    fn a_latency_beyond_the_bounds_is_kept_as_the_longest() {
        let mut measurement = Measurement::new();
        measurement.record(true);
        measurement.completed_in(u64::MAX);
        assert!(measurement.latency().max() >= LONGEST);
    }
}
