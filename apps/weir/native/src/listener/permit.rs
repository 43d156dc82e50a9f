//! The permit of a connection that came through a listener.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustler::{Env, LocalPid};

use crate::listener::Listener;
use crate::value::admission::Address;
use crate::value::latency::Times;

/// An accepted connection that waits for a process.
pub struct Arrival {
    pub fd: OwnedFd,
    /// The address under which the limit per address counts it, if there is such a limit.
    pub(super) address: Option<Address>,
}

/// What a connection gives back to its listener when it is closed.
pub struct Permit {
    listener: Arc<Listener>,
    address: Option<Box<Address>>,
    /// The process that it was accepted for.
    pub process: LocalPid,
    /// It no longer counts against the connection limit.
    exempt: bool,
    /// The process is bound to the scheduler of the socket's pollset.
    pub bound: bool,
}

impl Permit {
    /// Gives back the place of the connection.
    pub fn end(self, env: Env) {
        self.listener.leave(env, self.address.map(|address| *address), !self.exempt);
    }

    /// Excludes the connection from the connection limit.
    pub fn exempt(&mut self, env: Env) {
        if !std::mem::replace(&mut self.exempt, true) {
            self.listener.give_place_back(env);
        }
    }

    /// Where its reply times on a pollset are counted, if the listener measures them.
    pub fn times(&self, pollset: u16) -> Option<&Times> {
        self.listener.latency.times(pollset)
    }

    /// Whether this is a permit of `listener`.
    pub fn is_of(&self, listener: &Arc<Listener>) -> bool {
        Arc::ptr_eq(&self.listener, listener)
    }
}

impl Arrival {
    /// Returns the descriptor, and a permit for a socket of `process`.
    pub fn into_parts(self, listener: Arc<Listener>, process: LocalPid) -> (OwnedFd, Permit) {
        let (bound, address) = (listener.binds(), self.address.map(Box::new));
        (self.fd, Permit { listener, address, process, exempt: false, bound })
    }

    /// Reverses [`into_parts`](Self::into_parts).
    pub fn from_parts(fd: OwnedFd, permit: Permit) -> Arrival {
        Arrival { fd, address: permit.address.map(|address| *address) }
    }
}
