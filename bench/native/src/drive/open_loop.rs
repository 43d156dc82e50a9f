//! Echo at a rate, whatever the server makes of it: messages come due at random moments, each on a connection drawn at
//! random.
//!
//! A latency is counted from the moment at which its message was due. So a server that stalls is not spared the
//! messages that would have come meanwhile: they wait for the reply to the one before and count their wait.

use std::collections::VecDeque;

use super::measurement::{Fault, Measurement};
use super::pattern::{Message, Pattern, Position};
use super::protocol::{Connection, Protocol};
use super::transport::{Turn, read};
use crate::clock::{self, SECOND};
use crate::connections::Connections;
use crate::poller::Readiness;
use crate::socket::{scratch, send};

/// The protocol.
#[derive(Debug)]
pub struct OpenLoop {
    pattern: Pattern,
    arrivals: Arrivals,
    scratch: Box<[u8]>,
}

/// The two ends of a connection's stream.
#[derive(Debug)]
pub struct Stream {
    id: u32,
    sent: Position,
    received: Position,
    /// When the messages without a reply were due; the first is on its way.
    due: VecDeque<u64>,
}

/// The moments at which messages come due: a Poisson process, the same in each run.
#[derive(Debug)]
struct Arrivals {
    /// Mean nanoseconds from one to the next.
    interval: f64,
    next: u64,
    random: SplitMix64,
}

/// The generator of Steele, Lea and Flood: small, and good enough to draw connections.
#[derive(Debug)]
struct SplitMix64(u64);

impl OpenLoop {
    /// So many messages a second over all connections.
    pub fn new(message: Message, per_second: u64) -> Self {
        Self {
            pattern: Pattern::new(message.frame, message.size, 1),
            arrivals: Arrivals {
                interval: SECOND as f64 / per_second as f64,
                next: clock::now(),
                random: SplitMix64(per_second),
            },
            scratch: scratch(),
        }
    }

    /// Sends what is left of the message that is on its way.
    #[inline]
    fn write(&mut self, connection: &mut Connection<Stream>) -> Result<(), Fault> {
        let stream = &mut connection.state;
        let end = stream.received.message + 1;
        let bytes = self.pattern.bytes(stream.id, stream.sent, end);
        let sent = send(&connection.socket, bytes)?;
        stream.sent = stream.sent.after(sent, self.pattern.length());
        Ok(())
    }
}

impl Stream {
    fn is_unsent(&self) -> bool {
        !self.due.is_empty() && self.sent.message == self.received.message
    }
}

impl Arrivals {
    /// Goes on to the next.
    #[inline]
    fn advance(&mut self) {
        // The time between two events of a Poisson process is distributed exponentially; 1 - x is never 0.
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

    /// At least 0 and less than 1.
    #[inline]
    fn fraction(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    #[inline]
    fn below(&mut self, limit: u32) -> u32 {
        ((u128::from(self.next()) * u128::from(limit)) >> 64) as u32
    }
}

impl Protocol for OpenLoop {
    type State = Stream;

    fn open(&mut self, index: u32) -> Stream {
        Stream {
            id: index,
            sent: Position::default(),
            received: Position::default(),
            due: VecDeque::new(),
        }
    }

    /// Nothing comes due before the last connection is there.
    fn start(&mut self, _: &mut Connection<Stream>, _: &mut Measurement) -> Result<(), Fault> {
        self.arrivals.next = clock::now();
        Ok(())
    }

    #[inline]
    fn ready(
        &mut self,
        connection: &mut Connection<Stream>,
        readiness: Readiness,
        measurement: &mut Measurement,
    ) -> Result<Turn, Fault> {
        if readiness.writable() && connection.state.is_unsent() {
            self.write(connection)?;
        }
        if !readiness.readable() {
            return Ok(Turn::Done);
        }
        let Connection { socket, state, .. } = connection;
        let before = state.received.message;
        let turn = read(socket, readiness, &mut self.scratch, |bytes| {
            let is_right = self.pattern.verify(state.id, &mut state.received, bytes);
            if !is_right || state.received > state.sent {
                return Err(Fault::Mismatch);
            }
            measurement.transferred(bytes.len());
            Ok(())
        })?;
        if state.received.message > before {
            if let Some(due) = state.due.pop_front() {
                measurement.completed_in(clock::now() - due);
            }
            connection.waiting_since = state.due.front().copied().unwrap_or(0);
            if connection.waiting_since > 0 {
                self.write(connection)?;
            }
        }
        Ok(turn)
    }

    fn deadline(&self) -> Option<u64> {
        Some(self.arrivals.next)
    }

    #[inline]
    fn tick(
        &mut self,
        connections: &mut Connections<Connection<Stream>>,
        now: u64,
        measurement: &mut Measurement,
    ) {
        while self.arrivals.next <= now {
            let due = self.arrivals.next;
            let drawn = self.arrivals.random.below(connections.places());
            self.arrivals.advance();
            // What was drawn for a connection that has failed is lost: the failure is counted.
            let Some((token, connection)) = connections.at_mut(drawn) else {
                continue;
            };
            connection.state.due.push_back(due);
            if connection.state.due.len() > 1 {
                continue;
            }
            connection.waiting_since = due;
            if let Err(fault) = self.write(connection) {
                measurement.failed(fault);
                connections.remove(token);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrivals_come_at_the_rate_and_at_random() {
        let mut arrivals = Arrivals {
            interval: 1000.0,
            next: 0,
            random: SplitMix64(1),
        };
        let mut gaps = Vec::new();
        for _ in 0..100_000 {
            let before = arrivals.next;
            arrivals.advance();
            gaps.push(arrivals.next - before);
        }
        let mean = arrivals.next as f64 / gaps.len() as f64;
        assert!((mean / 1000.0 - 1.0).abs() < 0.02, "{mean}");
        // Of an exponential distribution 63 in a hundred are below the mean.
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
