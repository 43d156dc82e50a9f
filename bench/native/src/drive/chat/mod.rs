//! Rooms of a push server: clients that listen with long polls, event streams or WebSockets, and
//! speakers in each room.
//!
//! Messages are due at random moments, independent of the server, and a delay counts from the due
//! time until a client has the message: a server that stalls also pays for messages that become
//! due meanwhile. Alternatively a fixed number of messages is in flight at a time, and a delay is
//! that of the last client.
//!
//! With churn, clients drop their connections at the given rate and reconnect with their old
//! position.

mod answer;
mod beginning;
mod course;
mod listener;
mod member;
mod message;
mod pace;
mod speaker;

use rustix::net::sockopt;

use super::arrivals::Arrivals;
use super::lane::{ALARM, CONNECTIONS};
use super::load::{Chat, Load};
use super::measurement::{Fault, Measurement};
use super::readers::Readers;
use super::session::{Outcome, Session, TIMEOUT_SCAN};
use super::transport::{Turn, read};
use crate::alarm::Alarm;
use crate::clock;
use crate::command_line::Failure;
use crate::connections::Connections;
use crate::limits;
use crate::poller::{Event, Events, Interest, Token};
use crate::socket::scratch;
use beginning::LOOK;
pub use course::Course;
use listener::Listener;
use member::{Member, Role, everybody};
use pace::Pace;
use speaker::Speaker;

struct Crowd<'a> {
    load: &'a Load,
    session: Session,
    members: Connections<Member>,
    /// Members without a connection.
    resting: Vec<Role>,
    readers: Readers,
    listeners: Vec<Listener>,
    speakers: Vec<Speaker>,
    pace: Pace,
    departures: Option<Arrivals>,
    alarm: Alarm,
    is_started: bool,
    course: Course,
    scan_at: u64,
    scratch: Box<[u8]>,
}

/// Runs the chat through warm-up and window.
pub fn run(
    load: &Load,
    chat: Chat,
    session: Session,
) -> Result<(Outcome, Measurement, Course), Failure> {
    limits::raise_descriptors();
    let now = clock::now();
    let mut crowd = Crowd {
        load,
        session,
        members: Connections::new(CONNECTIONS),
        resting: everybody(load.connections, chat.rooms * chat.speakers),
        readers: Readers {
            all: load.connections,
            slow: chat.slow,
        },
        listeners: listener::of_rooms(load, &chat),
        speakers: speaker::of_rooms(load, &chat),
        pace: Pace::new(&chat, load.connections, now),
        departures: (chat.churn > 0).then(|| Arrivals::new(chat.churn, now)),
        alarm: Alarm::new()?,
        is_started: false,
        course: Course::default(),
        scan_at: now,
        scratch: scratch(),
    };
    crowd
        .session
        .poller
        .add(&crowd.alarm, ALARM, Interest::Read)?;
    let mut events = Events::new();
    loop {
        let patience = (!crowd.is_started).then_some(LOOK);
        crowd.session.poller.wait(&mut events, patience)?;
        crowd.give_up_if_late(now)?;
        for event in events.iter() {
            match event.token.lane() {
                CONNECTIONS => crowd.ready(event)?,
                _ if event.token == ALARM => crowd.tick()?,
                _ => crowd.control(event)?,
            }
        }
        if let Some(outcome) = crowd.session.outcome() {
            return Ok((outcome, crowd.session.measurement, crowd.course));
        }
    }
}

impl Crowd<'_> {
    /// Handles what is due: messages and departures.
    fn tick(&mut self) -> Result<(), Failure> {
        self.alarm.acknowledge();
        let now = clock::now();
        self.say(now)?;
        self.depart(now)?;
        self.set_alarm()
    }

    /// Publishes all messages that are due.
    fn say(&mut self, now: u64) -> Result<(), Failure> {
        while let Some((due, speaker)) = self.pace.due(now) {
            self.course.due(due);
            if let Some(token) = self.speakers[speaker as usize].enqueue(due) {
                self.speak(token)?;
            }
        }
        Ok(())
    }

    /// Makes listeners drop their connections and reconnect.
    fn depart(&mut self, now: u64) -> Result<(), Failure> {
        while let Some(departures) = &mut self.departures {
            if departures.next() > now {
                break;
            }
            let drawn = departures.draw(self.members.places());
            departures.advance();
            if let Some((token, member)) = self.members.at_mut(drawn)
                && member.is_connected
                && let Role::Listener(index) = member.role
            {
                self.members.remove(token);
                self.listeners[index as usize].left();
                self.begin(Role::Listener(index))?;
            }
        }
        Ok(())
    }

    fn set_alarm(&self) -> Result<(), Failure> {
        let departure = self.departures.as_ref().map(Arrivals::next);
        match self.pace.next().into_iter().chain(departure).min() {
            Some(next) => Ok(self.alarm.set(next)?),
            None => Ok(()),
        }
    }

    fn start(&mut self) -> Result<(), Failure> {
        self.is_started = true;
        self.session.begin(self.load.connections);
        let now = clock::now();
        self.pace.start_at(now);
        if let Some(departures) = &mut self.departures {
            departures.start_at(now);
        }
        self.say(now)?;
        self.set_alarm()
    }

    /// Sends the next due message of a speaker.
    fn speak(&mut self, token: Token) -> Result<(), Failure> {
        let Some(member) = self.members.get_mut(token) else {
            return Ok(());
        };
        let Role::Speaker(index) = member.role else {
            return Ok(());
        };
        if let Some(request) = self.speakers[index as usize].next_request() {
            member.since = clock::now();
            if let Err(fault) = member.send(request) {
                self.lose(token, fault);
            }
        }
        Ok(())
    }

    #[inline]
    fn ready(&mut self, event: Event) -> Result<(), Failure> {
        let Some(member) = self.members.get_mut(event.token) else {
            return Ok(());
        };
        if !member.is_connected {
            if event.readiness.failed() {
                let fault = match sockopt::socket_error(&member.socket) {
                    Ok(Err(errno)) | Err(errno) => Fault::from(errno),
                    Ok(Ok(())) => Fault::Closed,
                };
                self.lose(event.token, fault);
                return Ok(());
            }
            return self.connected(event.token);
        }
        let turn = self.served(event);
        if self.pace.has_room() {
            self.say(clock::now())?;
        }
        match turn {
            Ok(Turn::Done) => Ok(()),
            Ok(Turn::More) => {
                let Some(member) = self.members.get_mut(event.token) else {
                    return Ok(());
                };
                let poller = &self.session.poller;
                Ok(poller.rearm(&member.socket, event.token, Interest::ReadWrite)?)
            }
            Err(fault) => {
                self.lose(event.token, fault);
                Ok(())
            }
        }
    }

    fn connected(&mut self, token: Token) -> Result<(), Failure> {
        let Some(member) = self.members.get_mut(token) else {
            return Ok(());
        };
        member.is_connected = true;
        member.since = 0;
        match member.role {
            Role::Listener(index) => {
                let request = self.listeners[index as usize].request();
                if let Err(fault) = member.send(request) {
                    self.lose(token, fault);
                }
            }
            Role::Speaker(index) => {
                self.speakers[index as usize].came(token);
                self.speak(token)?;
            }
        }
        Ok(())
    }

    /// Reads from a connection and sends the next request if one is due.
    fn served(&mut self, event: Event) -> Result<Turn, Fault> {
        let Self {
            members,
            listeners,
            speakers,
            session,
            pace,
            course,
            scratch,
            readers,
            ..
        } = self;
        let Some(member) = members.get_mut(event.token) else {
            return Ok(Turn::Done);
        };
        if event.readiness.writable() {
            member.flush()?;
        }
        let role = member.role;
        let is_slow = matches!(role, Role::Listener(index) if readers.is_slow(index));
        if is_slow || !event.readiness.readable() {
            return Ok(Turn::Done);
        }
        let measurement = &mut session.measurement;
        let mut next = false;
        let turn = read(&member.socket, event.readiness, scratch, |bytes| {
            measurement.transferred(bytes.len());
            match role {
                Role::Speaker(index) => {
                    if speakers[index as usize].hear(bytes)? {
                        course.published += u64::from(measurement.is_recording());
                        next = true;
                    }
                }
                Role::Listener(index) => {
                    let now = clock::now();
                    next |= listeners[index as usize].hear(bytes, |message| {
                        course.got(now, message.missed, measurement.is_recording());
                        if pace.came(message.number) {
                            measurement.completed_in(now.saturating_sub(message.due));
                        }
                    })?;
                }
            }
            Ok(())
        })?;
        if next {
            match role {
                Role::Listener(index) => member.send(listeners[index as usize].request())?,
                Role::Speaker(index) => {
                    member.since = 0;
                    if let Some(request) = speakers[index as usize].next_request() {
                        member.since = clock::now();
                        member.send(request)?;
                    }
                }
            }
        }
        Ok(turn)
    }

    /// Removes a connection that failed; its owner reconnects later.
    fn lose(&mut self, token: Token, fault: Fault) {
        let Some(member) = self.members.remove(token) else {
            return;
        };
        match member.role {
            Role::Listener(index) => self.listeners[index as usize].left(),
            Role::Speaker(index) => self.speakers[index as usize].left(),
        }
        if member.is_connected {
            self.failed(member.role, fault);
        } else {
            self.not_connected(member.role, fault);
        }
    }

    fn control(&mut self, event: Event) -> Result<(), Failure> {
        let now = clock::now();
        if self.scan_at <= now {
            self.scan_at = now + TIMEOUT_SCAN;
            let timeout = self.load.timeout.as_nanos() as u64;
            let late: Vec<_> = self
                .members
                .iter_mut()
                .filter(|(_, member)| member.is_late(now, timeout))
                .map(|(token, _)| token)
                .collect();
            for token in late {
                self.lose(token, Fault::Timeout);
            }
            for _ in 0..self.pace.give_up(now, timeout) {
                self.session.measurement.failed(Fault::Timeout);
            }
            if self.pace.has_room() {
                self.say(now)?;
            }
        }
        self.resume()?;
        let was_recording = self.session.measurement.is_recording();
        self.session.control(event.token, now)?;
        if was_recording && !self.session.measurement.is_recording() {
            self.course.ended(now);
        }
        Ok(())
    }
}
