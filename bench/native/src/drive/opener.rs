//! When the next connection may be opened: limits number and rate, and waits for a server that is
//! starting.

use super::measurement::Fault;
use crate::clock::{MILLISECOND, SECOND};

/// Most connections being opened at a time: fewer than the default backlog of a server.
const MOST_IN_FLIGHT: u32 = 500;

/// How long to wait for a server that is starting, and the interval of attempts.
const RETRY_FOR: u64 = 5 * SECOND;
const RETRY_EVERY: u64 = 50 * MILLISECOND;

/// How the connections are opened.
#[derive(Clone, Copy, Debug)]
pub struct Opening {
    /// Most connections a second.
    pub per_second: u64,
    /// Waits up to five seconds for a server that does not listen yet.
    pub retries: bool,
}

impl Opening {
    /// A rate that every server accepts. The kernel retries a connection one second after a full
    /// backlog.
    pub const STEADY: Self = Self {
        per_second: 10_000,
        retries: false,
    };

    /// For a proxy under test, which is started after the backend is ready.
    pub const PATIENT: Self = Self {
        retries: true,
        ..Self::STEADY
    };

    /// The same with another rate, if given.
    pub(super) fn at(self, per_second: Option<u64>) -> Self {
        Self {
            per_second: per_second.unwrap_or(self.per_second),
            ..self
        }
    }
}

/// The progress of opening all connections: a value.
#[derive(Debug)]
pub(super) struct Opener {
    opening: Opening,
    wanted: u32,
    pub(super) dialed: u32,
    pub(super) in_flight: u32,
    pub(super) open: u32,
    started: u64,
    not_before: u64,
    pub(super) last_fault: Option<Fault>,
}

impl Opener {
    pub(super) fn new(opening: Opening, wanted: u32, now: u64) -> Self {
        Self {
            opening,
            wanted,
            dialed: 0,
            in_flight: 0,
            open: 0,
            started: now,
            not_before: now,
            last_fault: None,
        }
    }

    pub(super) fn is_done(&self) -> bool {
        self.dialed == self.wanted && self.in_flight == 0
    }

    /// How many connections may be opened now.
    pub(super) fn allowance(&self, now: u64) -> u32 {
        if now < self.not_before {
            return 0;
        }
        let by_flight = MOST_IN_FLIGHT - self.in_flight;
        let elapsed = u128::from(now - self.started);
        let due = 1 + elapsed * u128::from(self.opening.per_second) / u128::from(SECOND);
        let by_rate = (due as u32).saturating_sub(self.dialed);
        // A server that may not listen yet is probed with one connection.
        let by_caution = if self.opening.retries && self.open == 0 {
            1_u32.saturating_sub(self.in_flight)
        } else {
            u32::MAX
        };
        (self.wanted - self.dialed)
            .min(by_flight)
            .min(by_rate)
            .min(by_caution)
    }

    pub(super) fn opened(&mut self) {
        self.in_flight -= 1;
        self.open += 1;
    }

    /// A connection failed to open. Returns whether that counts: not if it will be retried.
    pub(super) fn failed(&mut self, fault: Fault, now: u64) -> bool {
        self.in_flight -= 1;
        self.last_fault = Some(fault);
        let tries_again = self.opening.retries
            && self.open == 0
            && fault == Fault::Refused
            && now < self.started + RETRY_FOR;
        if tries_again {
            self.dialed -= 1;
            self.not_before = now + RETRY_EVERY;
        }
        !tries_again
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_in_flight_are_bounded() {
        let mut opener = Opener::new(Opening::STEADY, 1200, 0);
        assert_eq!(opener.allowance(SECOND), 500);
        opener.dialed = 1100;
        opener.in_flight = 350;
        assert_eq!(opener.allowance(SECOND), 100);
        opener.opened();
        assert!(!opener.is_done());
    }

    #[test]
    fn a_rate_spreads_the_connections() {
        let opening = Opening {
            per_second: 100,
            retries: false,
        };
        let mut opener = Opener::new(opening, 1000, 0);
        assert_eq!(opener.allowance(0), 1);
        opener.dialed = 1;
        assert_eq!(opener.allowance(SECOND / 2), 50);
    }

    #[test]
    fn a_server_that_is_not_there_yet_is_tried_again_for_a_while() {
        let mut opener = Opener::new(Opening::PATIENT, 10, 0);
        assert_eq!(opener.allowance(0), 1);
        (opener.dialed, opener.in_flight) = (1, 1);
        assert_eq!(opener.allowance(0), 0);
        assert!(!opener.failed(Fault::Refused, 0));
        assert_eq!(opener.allowance(0), 0);
        assert_eq!(opener.allowance(RETRY_EVERY), 1);
        (opener.dialed, opener.in_flight) = (1, 1);
        assert!(opener.failed(Fault::Refused, RETRY_FOR));
    }
}
