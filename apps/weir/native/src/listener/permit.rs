//! What a connection has from the listener through which it came.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustler::{Env, LocalPid};

use crate::listener::Listener;
use crate::value::admission::Address;
use crate::value::latency::Times;

/// A connection that no process has yet.
pub struct Arrival {
    pub fd: OwnedFd,
    /// Where the limit of connections for each address has noted it.
    pub(super) address: Option<Address>,
}

/// What a connection gives back when it is closed.
pub struct Permit {
    listener: Arc<Listener>,
    address: Option<Box<Address>>,
    /// The process that it was accepted for.
    pub process: LocalPid,
    /// It does not count against the limit of connections any more.
    exempt: bool,
    /// The process is bound to the scheduler of the socket's pollset.
    pub bound: bool,
}

impl Permit {
    /// Gives the place of a connection back.
    pub fn end(self, env: Env) {
        self.listener.leave(env, self.address.map(|address| *address), !self.exempt);
    }

    /// Has the connection not count against the limit of connections any more.
    pub fn exempt(&mut self, env: Env) {
        if !std::mem::replace(&mut self.exempt, true) {
            self.listener.give_place_back(env);
        }
    }

    /// Where the times of its replies go, on a pollset, if the listener measures them.
    pub fn times(&self, pollset: u16) -> Option<&Times> {
        self.listener.latency.times(pollset)
    }

    /// Whether this is a permit of `listener`.
    pub fn is_of(&self, listener: &Arc<Listener>) -> bool {
        Arc::ptr_eq(&self.listener, listener)
    }
}

impl Arrival {
    /// The descriptor, and the permit of a socket of `process`.
    pub fn into_parts(self, listener: Arc<Listener>, process: LocalPid) -> (OwnedFd, Permit) {
        let (bound, address) = (listener.binds(), self.address.map(Box::new));
        (self.fd, Permit { listener, address, process, exempt: false, bound })
    }

    /// What [`into_parts`](Self::into_parts) took apart.
    pub fn from_parts(fd: OwnedFd, permit: Permit) -> Arrival {
        Arrival { fd, address: permit.address.map(|address| *address) }
    }
}
