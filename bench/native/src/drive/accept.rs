//! Short connections: connect, send a request, read the reply, reset.

use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::sockopt;

use super::client_hello::Hello;
use super::lane::{BACKEND, BACKEND_LISTENER, CONNECTIONS};
use super::load::Load;
use super::measurement::{Fault, Measurement};
use super::session::{Outcome, Session, TIMEOUT_SCAN};
use crate::clock;
use crate::command_line::Failure;
use crate::connections::Connections;
use crate::limits;
use crate::poller::{Event, Events, Interest, Token};
use crate::reference::server::{Server, Service};
use crate::socket::{Received, receive, scratch, send};

/// The request, 26 bytes.
const REQUEST: &[u8] = b"GET / HTTP/1.0\r\nHost:w\r\n\r\n";

/// The bytes that each connection sends, and when they count as answered.
struct Question {
    bytes: Vec<u8>,
    /// Bytes of a send.
    piece: usize,
    /// Received bytes after which the answer counts as complete.
    answer: usize,
}

impl Question {
    /// A ClientHello is echoed in full: a proxy may first pass on a part.
    fn new(hello: Option<Hello>) -> Self {
        match hello {
            None => Self {
                bytes: REQUEST.to_vec(),
                piece: REQUEST.len(),
                answer: 1,
            },
            Some(hello) => Self {
                bytes: hello.record(),
                piece: hello.piece(),
                answer: hello.bytes,
            },
        }
    }

    /// Sends the bytes after `sent` until the kernel takes no more.
    fn ask(&self, socket: &OwnedFd, sent: &mut usize) -> rustix::io::Result<()> {
        while *sent < self.bytes.len() {
            let end = self.bytes.len().min(*sent + self.piece);
            match send(socket, &self.bytes[*sent..end])? {
                0 => break,
                length => *sent += length,
            }
        }
        Ok(())
    }
}

#[derive(Debug)]
struct Attempt {
    socket: OwnedFd,
    started: u64,
    sent: usize,
    got: usize,
    /// Its index among the concurrent attempts.
    place: u32,
}

struct Churn<'a> {
    load: &'a Load,
    question: Question,
    session: Session,
    attempts: Connections<Attempt>,
    /// Indexes whose last attempt failed. They retry at the next tick and not at once, so that a
    /// refusing server is not flooded.
    resting: Vec<u32>,
    has_succeeded: bool,
    scan_at: u64,
    scratch: Box<[u8]>,
}

/// Keeps as many concurrent attempts as the load has connections, through warm-up and window.
///
/// The same thread runs the server in `backend`, to which a proxy under test connects.
pub fn run<B: Service>(
    load: &Load,
    hello: Option<Hello>,
    mut session: Session,
    mut backend: Option<Server<B>>,
) -> Result<(Outcome, Measurement), Failure> {
    limits::raise_descriptors();
    if let Some(backend) = &backend {
        backend.register(&session.poller, BACKEND_LISTENER)?;
    }
    session.begin(load.connections);
    let mut churn = Churn {
        load,
        question: Question::new(hello),
        session,
        attempts: Connections::new(CONNECTIONS),
        resting: (0..load.connections).collect(),
        has_succeeded: false,
        scan_at: clock::now(),
        scratch: scratch(),
    };
    churn.resume()?;
    let mut events = Events::new();
    loop {
        churn.session.poller.wait(&mut events, None)?;
        for event in events.iter() {
            match (event.token.lane(), &mut backend) {
                (CONNECTIONS, _) => churn.ready(event)?,
                (BACKEND, Some(backend)) => backend.ready(event, &churn.session.poller),
                (_, Some(backend)) if event.token == BACKEND_LISTENER => {
                    backend.accept(&churn.session.poller)?;
                }
                _ => churn.control(event)?,
            }
        }
        if let Some(outcome) = churn.session.outcome() {
            drop(churn.attempts);
            if let Some(backend) = &mut backend {
                backend.see_out(&churn.session.poller, BACKEND_LISTENER)?;
            }
            return Ok((outcome, churn.session.measurement));
        }
    }
}

impl Churn<'_> {
    fn resume(&mut self) -> Result<(), Failure> {
        for place in std::mem::take(&mut self.resting) {
            self.begin(place)?;
        }
        Ok(())
    }

    fn begin(&mut self, place: u32) -> Result<(), Failure> {
        let started = clock::now();
        match self.dial(place, started) {
            Ok(attempt) => {
                self.attempts.insert(attempt);
                Ok(())
            }
            Err(errno @ (Errno::MFILE | Errno::NFILE | Errno::ADDRNOTAVAIL | Errno::NOBUFS)) => {
                let what = format!("cannot open a connection to {}", self.load.target);
                Err(Failure::runtime(what, errno))
            }
            Err(errno) => self.failed(place, errno.into()),
        }
    }

    fn dial(&self, place: u32, started: u64) -> rustix::io::Result<Attempt> {
        let socket = self.load.target.dial(place)?;
        // On loopback the connection is already established, so the request needs no event.
        let mut sent = 0;
        self.question.ask(&socket, &mut sent)?;
        let interest = if sent == self.question.bytes.len() {
            Interest::Read
        } else {
            Interest::ReadWrite
        };
        self.session
            .poller
            .add(&socket, self.attempts.next_token(), interest)?;
        Ok(Attempt {
            socket,
            started,
            sent,
            got: 0,
            place,
        })
    }

    #[inline]
    fn ready(&mut self, event: Event) -> Result<(), Failure> {
        let Some(attempt) = self.attempts.get_mut(event.token) else {
            return Ok(());
        };
        let place = attempt.place;
        match attempt.step(event, &self.question, &mut self.scratch) {
            Ok(false) => Ok(()),
            Ok(true) => {
                let latency = clock::now() - attempt.started;
                self.session.measurement.completed_in(latency);
                self.has_succeeded = true;
                self.attempts.remove(event.token);
                self.begin(place)
            }
            Err(fault) => self.give_up(event.token, place, fault),
        }
    }

    fn give_up(&mut self, token: Token, place: u32, fault: Fault) -> Result<(), Failure> {
        self.attempts.remove(token);
        self.failed(place, fault)
    }

    fn failed(&mut self, place: u32, fault: Fault) -> Result<(), Failure> {
        if fault == Fault::Refused && !self.has_succeeded {
            let what = format!("cannot connect to {}", self.load.target);
            return Err(Failure::runtime(what, fault.kind()));
        }
        self.session.measurement.failed(fault);
        self.resting.push(place);
        Ok(())
    }

    fn control(&mut self, event: Event) -> Result<(), Failure> {
        let now = clock::now();
        if self.scan_at <= now {
            self.scan_at = now + TIMEOUT_SCAN;
            let timeout = self.load.timeout.as_nanos() as u64;
            let late: Vec<_> = self
                .attempts
                .iter_mut()
                .filter(|(_, attempt)| now.saturating_sub(attempt.started) > timeout)
                .map(|(token, attempt)| (token, attempt.place))
                .collect();
            for (token, place) in late {
                self.give_up(token, place, Fault::Timeout)?;
            }
        }
        self.resume()?;
        self.session.control(event.token, now)
    }
}

impl Attempt {
    /// Proceeds until the kernel has no more data or room, and returns whether the reply is
    /// complete.
    #[inline]
    fn step(
        &mut self,
        event: Event,
        question: &Question,
        scratch: &mut [u8],
    ) -> Result<bool, Fault> {
        if self.sent < question.bytes.len() && event.readiness.writable() {
            if event.readiness.failed() {
                sockopt::socket_error(&self.socket)??;
                return Err(Fault::Closed);
            }
            question.ask(&self.socket, &mut self.sent)?;
        }
        if !event.readiness.readable() {
            return Ok(false);
        }
        loop {
            match receive(&self.socket, scratch)? {
                Received::Bytes(length) => {
                    self.got += length;
                    if self.got >= question.answer {
                        return Ok(true);
                    }
                }
                Received::Nothing => return Ok(false),
                Received::End => return Err(Fault::Closed),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_request_is_as_long_as_documented() {
        assert_eq!(REQUEST.len(), 26);
    }
}
