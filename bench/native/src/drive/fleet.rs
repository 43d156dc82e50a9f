//! Connections that are opened up front and stay: the loop under every command but `accept`.

use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::sockopt;

use super::measurement::{Fault, Measurement, errors_in_words};
use super::options::Load;
use super::session::{ALARM, BACKEND_LISTENER, Outcome, Session, TIMEOUT_SCAN};
use super::target::Target;
use super::{BACKEND, CONNECTIONS};
use crate::alarm::Alarm;
use crate::clock::{self, MILLISECOND, SECOND};
use crate::command_line::Failure;
use crate::connections::Connections;
use crate::limits;
use crate::poller::{Event, Events, Interest, Readiness};
use crate::reference::server::{Server, Service};
use crate::socket::{READS_PER_EVENT, Received, receive};

/// How many connections may be on their way at the same time: less than the backlog of a server with defaults.
const MOST_IN_FLIGHT: u32 = 500;

/// Descriptors of the driver that are not connections: standard streams, epoll, timers, signals, /proc.
const OTHER_DESCRIPTORS: u64 = 16;

/// How long a server that is being started is waited for, and how often it is tried.
const RETRY_FOR: u64 = 5 * SECOND;
const RETRY_EVERY: u64 = 50 * MILLISECOND;

/// What is said on a connection.
pub trait Protocol {
    /// What the protocol keeps for a connection.
    type State;

    /// Begins the connection of this index.
    fn dial(&self, target: &Target, index: u32) -> Result<OwnedFd, Errno> {
        target.dial(index)
    }

    /// The state of a new connection.
    fn open(&mut self, index: u32) -> Self::State;

    /// Says what has to be said before a connection counts as open, and returns whether it does.
    fn greet(
        &mut self,
        _connection: &mut Connection<Self::State>,
        _readiness: Readiness,
    ) -> Result<bool, Fault> {
        Ok(true)
    }

    /// Says the first word, once all connections are open.
    fn start(
        &mut self,
        connection: &mut Connection<Self::State>,
        measurement: &mut Measurement,
    ) -> Result<(), Fault>;

    /// Serves a connection that is ready. What the server sends unasked may come before [`start`](Self::start).
    fn ready(
        &mut self,
        connection: &mut Connection<Self::State>,
        readiness: Readiness,
        measurement: &mut Measurement,
    ) -> Result<Turn, Fault>;

    /// When [`tick`](Self::tick) is wanted next, by [`clock::now`], of a protocol that does something by time.
    fn deadline(&self) -> Option<u64> {
        None
    }

    /// Does what is due at `now`. A connection that fails is to be counted and taken out.
    fn tick(
        &mut self,
        _connections: &mut Connections<Connection<Self::State>>,
        _now: u64,
        _measurement: &mut Measurement,
    ) {
    }
}

/// A connection to the server under test.
#[derive(Debug)]
pub struct Connection<S> {
    /// Its socket.
    pub socket: OwnedFd,
    /// When the oldest request without a reply was sent; 0 while there is none. It is what timeouts are taken from.
    pub waiting_since: u64,
    /// What the protocol keeps.
    pub state: S,
    is_connected: bool,
}

/// Whether a connection was read to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Nothing is left.
    Done,
    /// The others first.
    More,
}

/// Receives what is there and gives it to `take`, piece by piece.
#[inline]
pub fn read(
    socket: &OwnedFd,
    readiness: Readiness,
    scratch: &mut [u8],
    mut take: impl FnMut(&[u8]) -> Result<(), Fault>,
) -> Result<Turn, Fault> {
    for _ in 0..READS_PER_EVENT {
        match receive(socket, scratch)? {
            Received::Bytes(length) => {
                take(&scratch[..length])?;
                if length < scratch.len() && !readiness.closing() {
                    return Ok(Turn::Done);
                }
            }
            Received::Nothing => return Ok(Turn::Done),
            Received::End => return Err(Fault::Closed),
        }
    }
    Ok(Turn::More)
}

/// How the connections are opened.
#[derive(Clone, Copy, Debug, Default)]
pub struct Opening {
    /// The most connections a second.
    pub per_second: Option<u64>,
    /// Waits up to five seconds for a server that does not listen yet.
    pub retries: bool,
}

#[derive(Debug)]
struct Opener {
    opening: Opening,
    wanted: u32,
    dialed: u32,
    in_flight: u32,
    open: u32,
    started: u64,
    not_before: u64,
    last_fault: Option<Fault>,
}

impl Opener {
    fn new(opening: Opening, wanted: u32, now: u64) -> Self {
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

    fn is_done(&self) -> bool {
        self.dialed == self.wanted && self.in_flight == 0
    }

    /// How many connections may be begun now.
    fn allowance(&self, now: u64) -> u32 {
        if now < self.not_before {
            return 0;
        }
        let by_flight = MOST_IN_FLIGHT - self.in_flight;
        let by_rate = self.opening.per_second.map_or(u32::MAX, |rate| {
            let due = 1 + u128::from(now - self.started) * u128::from(rate) / u128::from(SECOND);
            (due as u32).saturating_sub(self.dialed)
        });
        // A server that may not be there yet is felt for with one connection.
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

    fn opened(&mut self) {
        self.in_flight -= 1;
        self.open += 1;
    }

    /// A connection failed on its way. Returns whether that counts: one that will be tried again does not.
    fn failed(&mut self, fault: Fault, now: u64) -> bool {
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

struct Fleet<'a, P: Protocol> {
    protocol: P,
    target: &'a Target,
    timeout: u64,
    session: Session,
    connections: Connections<Connection<P::State>>,
    opener: Opener,
    alarm: Alarm,
    is_started: bool,
    scan_at: u64,
}

/// Opens the connections, runs the protocol on them through warm-up and window, and returns what was measured. A
/// connection that fails is counted and stays closed; when the last one has failed the run is over.
///
/// A server in `backend` is run by the same thread: it is what a proxy under test connects to.
pub fn run<P: Protocol, B: Service>(
    protocol: P,
    load: &Load,
    opening: Opening,
    session: Session,
    mut backend: Option<Server<B>>,
) -> Result<(Outcome, Measurement), Failure> {
    check_descriptors(load.connections, backend.is_some())?;
    if let Some(backend) = &backend {
        backend.register(&session.poller, BACKEND_LISTENER)?;
    }
    let now = clock::now();
    let mut fleet = Fleet {
        protocol,
        target: &load.target,
        timeout: load.timeout.as_nanos() as u64,
        session,
        connections: Connections::new(CONNECTIONS),
        opener: Opener::new(opening, load.connections, now),
        alarm: Alarm::new()?,
        is_started: false,
        scan_at: now,
    };
    fleet
        .session
        .poller
        .add(&fleet.alarm, ALARM, Interest::Read)?;
    let mut events = Events::new();
    loop {
        if !fleet.is_started {
            fleet.open()?;
        }
        fleet.session.poller.wait(&mut events, None)?;
        for event in events.iter() {
            match (event.token.lane(), &mut backend) {
                (CONNECTIONS, _) => fleet.ready(event)?,
                (BACKEND, Some(backend)) => backend.ready(event, &fleet.session.poller),
                (_, Some(backend)) if event.token == BACKEND_LISTENER => {
                    backend.accept(&fleet.session.poller)?;
                }
                _ if event.token == ALARM => fleet.tick()?,
                _ => fleet.control(event)?,
            }
        }
        if let Some(outcome) = fleet.session.outcome() {
            return Ok((outcome, fleet.session.measurement));
        }
    }
}

impl<P: Protocol> Fleet<'_, P> {
    /// Begins as many connections as may be begun, and starts the protocol when all are there.
    fn open(&mut self) -> Result<(), Failure> {
        let now = clock::now();
        for _ in 0..self.opener.allowance(now) {
            let index = self.opener.dialed;
            self.opener.dialed += 1;
            self.opener.in_flight += 1;
            match self.protocol.dial(self.target, index) {
                Ok(socket) => self.dialed(socket, index, now)?,
                // Without waiting for an event, as some refusals on the machine itself.
                Err(Errno::CONNREFUSED) => self.not_connected(Fault::Refused, now),
                Err(errno) => {
                    let nth = index + 1;
                    return Err(Failure::runtime(
                        format!("cannot open connection {nth} to {}", self.target),
                        errno,
                    ));
                }
            }
        }
        if self.opener.is_done() {
            self.start()?;
        }
        Ok(())
    }

    fn dialed(&mut self, socket: OwnedFd, index: u32, now: u64) -> Result<(), Failure> {
        let token = self.connections.next_token();
        self.session
            .poller
            .add(&socket, token, Interest::ReadWrite)?;
        self.connections.insert(Connection {
            socket,
            waiting_since: now,
            state: self.protocol.open(index),
            is_connected: false,
        });
        Ok(())
    }

    fn start(&mut self) -> Result<(), Failure> {
        if self.opener.open == 0 {
            let why = match self.opener.last_fault {
                Some(Fault::System(errno)) => errno.to_string(),
                Some(fault) => fault.kind().to_string(),
                None => "closed".to_string(),
            };
            return Err(Failure::runtime(
                format!("cannot connect to {}", self.target),
                why,
            ));
        }
        self.is_started = true;
        self.session.begin(self.connections.len() as u32);
        let mut failed = Vec::new();
        for (token, connection) in self.connections.iter_mut() {
            let measurement = &mut self.session.measurement;
            if let Err(fault) = self.protocol.start(connection, measurement) {
                measurement.failed(fault);
                failed.push(token);
            }
        }
        for token in failed {
            self.connections.remove(token);
        }
        self.set_alarm()
    }

    fn set_alarm(&self) -> Result<(), Failure> {
        match self.protocol.deadline() {
            Some(at) => Ok(self.alarm.set(at)?),
            None => Ok(()),
        }
    }

    #[inline]
    fn tick(&mut self) -> Result<(), Failure> {
        self.alarm.acknowledge();
        let measurement = &mut self.session.measurement;
        self.protocol
            .tick(&mut self.connections, clock::now(), measurement);
        self.end_if_alone()?;
        self.set_alarm()
    }

    #[inline]
    fn ready(&mut self, event: Event) -> Result<(), Failure> {
        let Some(connection) = self.connections.get_mut(event.token) else {
            return Ok(());
        };
        if !connection.is_connected {
            if event.readiness.failed() {
                let fault = match sockopt::socket_error(&connection.socket) {
                    Ok(Err(errno)) | Err(errno) => Fault::from(errno),
                    Ok(Ok(())) => Fault::Closed,
                };
                self.connections.remove(event.token);
                self.not_connected(fault, clock::now());
                return Ok(());
            }
            match self.protocol.greet(connection, event.readiness) {
                Ok(true) => {}
                Ok(false) => return Ok(()),
                Err(fault) => {
                    self.connections.remove(event.token);
                    self.not_connected(fault, clock::now());
                    return Ok(());
                }
            }
            connection.is_connected = true;
            connection.waiting_since = 0;
            self.opener.opened();
        }
        let measurement = &mut self.session.measurement;
        match self
            .protocol
            .ready(connection, event.readiness, measurement)
        {
            Ok(Turn::Done) => Ok(()),
            Ok(Turn::More) => {
                let poller = &self.session.poller;
                Ok(poller.rearm(&connection.socket, event.token, Interest::ReadWrite)?)
            }
            Err(fault) => {
                measurement.failed(fault);
                self.connections.remove(event.token);
                self.end_if_alone()
            }
        }
    }

    fn not_connected(&mut self, fault: Fault, now: u64) {
        if self.opener.failed(fault, now) {
            self.session.measurement.failed(fault);
        }
    }

    fn control(&mut self, event: Event) -> Result<(), Failure> {
        let now = clock::now();
        if self.scan_at <= now {
            self.scan_at = now + TIMEOUT_SCAN;
            self.give_up(now)?;
        }
        self.session.control(event.token, now)
    }

    /// Closes the connections that have waited too long.
    fn give_up(&mut self, now: u64) -> Result<(), Failure> {
        let mut late = Vec::new();
        for (token, connection) in self.connections.iter_mut() {
            let since = connection.waiting_since;
            if since > 0 && now.saturating_sub(since) > self.timeout {
                late.push((token, connection.is_connected));
            }
        }
        for &(token, was_connected) in &late {
            self.connections.remove(token);
            if was_connected {
                self.session.measurement.failed(Fault::Timeout);
            } else {
                self.not_connected(Fault::Timeout, now);
            }
        }
        if late.is_empty() {
            Ok(())
        } else {
            self.end_if_alone()
        }
    }

    fn end_if_alone(&mut self) -> Result<(), Failure> {
        if self.is_started && self.connections.is_empty() {
            let errors = errors_in_words(self.session.measurement.errors());
            let what = format!("all connections to {} failed", self.target);
            return self
                .session
                .finish(clock::now())
                .map_err(|_| Failure::runtime(what, errors));
        }
        Ok(())
    }
}

fn check_descriptors(connections: u32, has_backend: bool) -> Result<(), Failure> {
    let limit = limits::raise_descriptors();
    let ends = if has_backend { 2 } else { 1 };
    let needed = u64::from(connections) * ends + OTHER_DESCRIPTORS;
    if needed > limit {
        return Err(Failure::Runtime(format!(
            "{connections} connections need {needed} descriptors: the limit is {limit} (ulimit -n)"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_in_flight_are_bounded() {
        let mut opener = Opener::new(Opening::default(), 1200, 0);
        assert_eq!(opener.allowance(0), 500);
        opener.dialed = 1100;
        opener.in_flight = 350;
        assert_eq!(opener.allowance(0), 100);
        opener.opened();
        assert!(!opener.is_done());
    }

    #[test]
    fn a_rate_spreads_the_connections() {
        let opening = Opening {
            per_second: Some(100),
            retries: false,
        };
        let mut opener = Opener::new(opening, 1000, 0);
        assert_eq!(opener.allowance(0), 1);
        opener.dialed = 1;
        assert_eq!(opener.allowance(SECOND / 2), 50);
    }

    #[test]
    fn a_server_that_is_not_there_yet_is_tried_again_for_a_while() {
        let opening = Opening {
            per_second: None,
            retries: true,
        };
        let mut opener = Opener::new(opening, 10, 0);
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
