//! A connection of a chat, and what the kernel had no room for.

use std::os::fd::OwnedFd;

use super::super::measurement::Fault;
use crate::socket::send;

/// Whose it is.
#[derive(Clone, Copy, Debug)]
pub enum Role {
    /// The listener of this number.
    Listener(u32),
    /// The speaker of this number.
    Speaker(u32),
}

/// Speakers come first: what is said before everybody listens is not measured.
pub fn everybody(listeners: u32, speakers: u32) -> Vec<Role> {
    (0..listeners)
        .rev()
        .map(Role::Listener)
        .chain((0..speakers).map(Role::Speaker))
        .collect()
}

/// A connection.
#[derive(Debug)]
pub struct Member {
    pub socket: OwnedFd,
    pub role: Role,
    pub is_connected: bool,
    /// Since when an answer, or the connection, is waited for; 0 while nothing is. A long poll may wait for ever.
    pub since: u64,
    unsent: Vec<u8>,
}

impl Member {
    pub fn new(socket: OwnedFd, role: Role, now: u64) -> Self {
        Self {
            socket,
            role,
            is_connected: false,
            since: now,
            unsent: Vec::new(),
        }
    }

    /// Whether it waits for longer than `timeout`.
    pub fn is_late(&self, now: u64, timeout: u64) -> bool {
        self.since > 0 && now.saturating_sub(self.since) > timeout
    }

    /// Sends a request, after what is left of the one before.
    pub fn send(&mut self, request: &[u8]) -> Result<(), Fault> {
        if self.unsent.is_empty() {
            let sent = send(&self.socket, request)?;
            self.unsent.extend_from_slice(&request[sent..]);
        } else {
            self.unsent.extend_from_slice(request);
        }
        Ok(())
    }

    /// Sends what is left.
    pub fn flush(&mut self) -> Result<(), Fault> {
        if !self.unsent.is_empty() {
            let sent = send(&self.socket, &self.unsent)?;
            self.unsent.drain(..sent);
        }
        Ok(())
    }
}
