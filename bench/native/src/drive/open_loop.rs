//! Requests at a given rate, independent of the server: they are due at random moments, each on a
//! connection drawn at random.
//!
//! A latency counts from the due time. A server that stalls therefore also pays for requests that
//! become due meanwhile: they wait for the answer to the previous one, and their wait counts.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;

use super::arrivals::Arrivals;
use super::measurement::{Fault, Measurement};
use super::protocol::{Connection, Protocol};
use super::transport::Turn;
use crate::clock;
use crate::connections::Connections;
use crate::poller::Readiness;
use crate::socket::scratch;

/// The exchange on a connection: a request, and the next after its answer.
pub trait Dialogue {
    /// The state of a connection.
    type State;

    /// The state of a new connection.
    fn open(&self, index: u32) -> Self::State;

    /// Starts the next request.
    fn ask(&mut self, state: &mut Self::State, socket: &OwnedFd) -> Result<(), Fault>;

    /// Sends the rest of the request, if any.
    fn go_on(&mut self, state: &mut Self::State, socket: &OwnedFd) -> Result<(), Fault>;

    /// Receives bytes, and returns whether the answer is complete.
    fn receive(
        &mut self,
        state: &mut Self::State,
        socket: &OwnedFd,
        readiness: Readiness,
        scratch: &mut [u8],
        measurement: &mut Measurement,
    ) -> Result<(Turn, bool), Fault>;
}

/// An open loop with this kind of request.
#[derive(Debug)]
pub struct OpenLoop<D> {
    dialogue: D,
    arrivals: Arrivals,
    scratch: Box<[u8]>,
}

/// A connection with its queue of requests.
#[derive(Debug)]
pub struct Queue<S> {
    state: S,
    /// Due times of unanswered requests; the first is in flight.
    due: VecDeque<u64>,
}

impl<D> OpenLoop<D> {
    /// Sends this many requests a second over all connections.
    pub fn new(dialogue: D, per_second: u64) -> Self {
        Self {
            dialogue,
            arrivals: Arrivals::new(per_second, clock::now()),
            scratch: scratch(),
        }
    }
}

impl<D: Dialogue> Protocol for OpenLoop<D> {
    type State = Queue<D::State>;

    fn open(&mut self, index: u32) -> Self::State {
        Queue {
            state: self.dialogue.open(index),
            due: VecDeque::new(),
        }
    }

    /// The first request is due when the last connection is open.
    fn start(&mut self, _: &mut Connection<Self::State>, _: &mut Measurement) -> Result<(), Fault> {
        self.arrivals.start_at(clock::now());
        Ok(())
    }

    #[inline]
    fn ready(
        &mut self,
        connection: &mut Connection<Self::State>,
        readiness: Readiness,
        measurement: &mut Measurement,
    ) -> Result<Turn, Fault> {
        let Connection { socket, state, .. } = connection;
        let Queue { state, due } = state;
        if readiness.writable() && !due.is_empty() {
            self.dialogue.go_on(state, socket)?;
        }
        if !readiness.readable() {
            return Ok(Turn::Done);
        }
        let scratch = &mut self.scratch;
        let (turn, is_answered) =
            self.dialogue
                .receive(state, socket, readiness, scratch, measurement)?;
        if is_answered {
            if let Some(due) = due.pop_front() {
                measurement.completed_in(clock::now() - due);
            }
            connection.waiting_since = due.front().copied().unwrap_or(0);
            if connection.waiting_since > 0 {
                self.dialogue.ask(state, socket)?;
            }
        }
        Ok(turn)
    }

    fn deadline(&self) -> Option<u64> {
        Some(self.arrivals.next())
    }

    #[inline]
    fn tick(
        &mut self,
        connections: &mut Connections<Connection<Self::State>>,
        now: u64,
        measurement: &mut Measurement,
    ) {
        while self.arrivals.next() <= now {
            let due = self.arrivals.next();
            let drawn = self.arrivals.draw(connections.places());
            self.arrivals.advance();
            // A request drawn for a failed connection is dropped: the failure is already counted.
            let Some((token, connection)) = connections.at_mut(drawn) else {
                continue;
            };
            connection.state.due.push_back(due);
            if connection.state.due.len() > 1 {
                continue;
            }
            connection.waiting_since = due;
            let state = &mut connection.state.state;
            if let Err(fault) = self.dialogue.ask(state, &connection.socket) {
                measurement.failed(fault);
                connections.remove(token);
            }
        }
    }
}
