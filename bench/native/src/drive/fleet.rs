//! Connections that are opened first and then stay open: the loop of all commands except `accept`.

use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::sockopt;

use super::lane::{ALARM, BACKEND, BACKEND_LISTENER, CONNECTIONS};
use super::load::Load;
use super::measurement::{Fault, Measurement, errors_in_words};
use super::opener::{Opener, Opening};
use super::protocol::{Connection, Protocol};
use super::session::{Outcome, Session, TIMEOUT_SCAN};
use super::target::Target;
use super::transport::Turn;
use crate::alarm::Alarm;
use crate::clock;
use crate::command_line::Failure;
use crate::connections::Connections;
use crate::limits;
use crate::poller::{Event, Events, Interest};
use crate::reference::server::{Server, Service};

/// Descriptors of the driver besides connections: standard streams, epoll, timers, signals, /proc.
const OTHER_DESCRIPTORS: u64 = 16;

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

/// Opens the connections, runs the protocol on them through warm-up and window, and returns the
/// measurement. A connection that fails is counted and stays closed. When the last one has failed,
/// the run ends.
///
/// The same thread runs the server in `backend`, to which a proxy under test connects.
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
        opener: Opener::new(opening.at(load.connect_rate), load.connections, now),
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
            drop(fleet.connections);
            if let Some(backend) = &mut backend {
                backend.see_out(&fleet.session.poller, BACKEND_LISTENER)?;
            }
            return Ok((outcome, fleet.session.measurement));
        }
    }
}

impl<P: Protocol> Fleet<'_, P> {
    /// Opens as many connections as allowed, and starts the protocol when all are open.
    fn open(&mut self) -> Result<(), Failure> {
        let now = clock::now();
        for _ in 0..self.opener.allowance(now) {
            let index = self.opener.dialed;
            self.opener.dialed += 1;
            self.opener.in_flight += 1;
            match self.protocol.dial(self.target, index) {
                Ok(socket) => self.dialed(socket, index, now)?,
                // Refused without an event, as some refusals on the same machine are.
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

    /// Closes connections whose reply is overdue.
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
