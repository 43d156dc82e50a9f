//! A connection of a chat, with unsent bytes.

use std::os::fd::OwnedFd;

use super::super::measurement::Fault;
use crate::socket::send;

/// The owner of a connection.
#[derive(Clone, Copy, Debug)]
pub enum Role {
    /// The listener of this number.
    Listener(u32),
    /// The speaker of this number.
    Speaker(u32),
}

/// Speakers come first: messages before all listeners are subscribed are not measured.
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
    /// When waiting for the connection or an answer began; 0 while it does not wait. A long poll
    /// may wait without a limit.
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

    /// Whether it has waited for longer than `timeout`.
    pub fn is_late(&self, now: u64, timeout: u64) -> bool {
        self.since > 0 && now.saturating_sub(self.since) > timeout
    }

    /// Sends a request, after the unsent bytes of the previous one.
    pub fn send(&mut self, request: &[u8]) -> Result<(), Fault> {
        if self.unsent.is_empty() {
            let sent = send(&self.socket, request)?;
            self.unsent.extend_from_slice(&request[sent..]);
        } else {
            self.unsent.extend_from_slice(request);
        }
        Ok(())
    }

    /// Sends the unsent bytes.
    pub fn flush(&mut self) -> Result<(), Fault> {
        if !self.unsent.is_empty() {
            let sent = send(&self.socket, &self.unsent)?;
            self.unsent.drain(..sent);
        }
        Ok(())
    }
}
