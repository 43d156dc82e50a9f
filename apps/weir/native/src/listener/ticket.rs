//! What a connection has from the gate through which it came.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustler::{Env, LocalPid};

use crate::listener::gate::Gate;
use crate::value::admission::Address;

/// A connection that no process has yet.
pub struct Arrival {
    pub fd: OwnedFd,
    /// Where the limit of connections for each address has noted it.
    pub(super) address: Option<Address>,
}

/// What a connection gives back when it is closed.
pub struct Ticket {
    gate: Arc<Gate>,
    address: Option<Box<Address>>,
    /// The process that it was accepted for.
    pub process: LocalPid,
    /// It does not count against the limit of connections any more.
    exempt: bool,
}

impl Ticket {
    /// Gives the place of a connection back.
    pub fn end(self, env: Env) {
        self.gate.leave(env, self.address.map(|address| *address), !self.exempt);
    }

    /// Has the connection not count against the limit of connections any more.
    pub fn exempt(&mut self, env: Env) {
        if !std::mem::replace(&mut self.exempt, true) {
            self.gate.give_place_back(env);
        }
    }

    /// Whether this is a ticket of `gate`.
    pub fn is_of(&self, gate: &Arc<Gate>) -> bool {
        Arc::ptr_eq(&self.gate, gate)
    }
}

impl Arrival {
    /// The descriptor, and the ticket of a socket of `process`.
    pub fn into_parts(self, gate: &Arc<Gate>, process: LocalPid) -> (OwnedFd, Ticket) {
        (self.fd, Ticket { gate: Arc::clone(gate), address: self.address.map(Box::new), process, exempt: false })
    }

    /// What [`into_parts`](Self::into_parts) took apart.
    pub fn from_parts(fd: OwnedFd, ticket: Ticket) -> Arrival {
        Arrival { fd, address: ticket.address.map(|address| *address) }
    }
}
