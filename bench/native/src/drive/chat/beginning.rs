//! Opens the connections of a chat.

use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::io::Errno;

use super::super::measurement::Fault;
use super::Crowd;
use super::member::{Member, Role};
use crate::clock;
use crate::command_line::Failure;
use crate::poller::Interest;

/// Most connections that are opened but not yet subscribed. A backlog of moderate size holds
/// these, and Pushpin's processes cope with them.
const BEGUN_AT_A_TIME: usize = 50;

/// How often to check whether all listeners are subscribed, and the longest time until they are.
pub(super) const LOOK: Duration = Duration::from_secs(1);
const PATIENCE: u64 = 120 * clock::SECOND;

impl Crowd<'_> {
    /// Opens connections for resting members, some at a time, and starts the run when all are
    /// subscribed.
    pub(super) fn resume(&mut self) -> Result<(), Failure> {
        if self.is_started && self.resting.is_empty() {
            return Ok(());
        }
        let begun = self.begun();
        if begun == 0 && self.resting.is_empty() {
            return self.start();
        }
        for _ in begun..BEGUN_AT_A_TIME {
            let Some(role) = self.resting.pop() else {
                break;
            };
            self.begin(role)?;
        }
        Ok(())
    }

    /// Returns an error if the run has not started long after the first connection.
    pub(super) fn give_up_if_late(&mut self, since: u64) -> Result<(), Failure> {
        if self.is_started || clock::now() - since < PATIENCE {
            return Ok(());
        }
        let waiting = self.begun() + self.resting.len();
        let why = format!("{waiting} connections are not ready after two minutes");
        Err(Failure::runtime("not all listeners are subscribed", why))
    }

    fn begun(&mut self) -> usize {
        let is_there = |one: &Member| match one.role {
            // A slow listener never reads the server's confirmation.
            Role::Listener(index) => {
                self.readers.is_slow(index) || self.listeners[index as usize].listens()
            }
            Role::Speaker(_) => true,
        };
        let members = self.members.iter_mut();
        members
            .filter(|(_, one)| !(one.is_connected && is_there(one)))
            .count()
    }

    pub(super) fn begin(&mut self, role: Role) -> Result<(), Failure> {
        let target = &self.load.target;
        let dialed = match role {
            Role::Listener(index) if self.readers.is_slow(index) => target.dial_to_ignore(index),
            Role::Listener(index) | Role::Speaker(index) => target.dial(index),
        };
        match dialed {
            Ok(socket) => self.dialed(socket, role),
            Err(errno @ (Errno::MFILE | Errno::NFILE | Errno::ADDRNOTAVAIL | Errno::NOBUFS)) => {
                let what = format!("cannot open a connection to {target}");
                Err(Failure::runtime(what, errno))
            }
            Err(errno) => {
                self.not_connected(role, errno.into());
                Ok(())
            }
        }
    }

    fn dialed(&mut self, socket: OwnedFd, role: Role) -> Result<(), Failure> {
        let token = self.members.next_token();
        self.session
            .poller
            .add(&socket, token, Interest::ReadWrite)?;
        self.members.insert(Member::new(socket, role, clock::now()));
        Ok(())
    }

    pub(super) fn not_connected(&mut self, role: Role, fault: Fault) {
        self.course.failed_connects += 1;
        self.failed(role, fault);
    }

    pub(super) fn failed(&mut self, role: Role, fault: Fault) {
        self.session.measurement.failed(fault);
        // Not at once: a refusing server must not be flooded.
        self.resting.insert(0, role);
    }
}
