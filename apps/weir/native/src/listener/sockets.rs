//! The listening sockets of a listener: their pollsets, and which of them belong to reactors.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use rustler::Env;

use crate::kernel::clock::Nanos;
use crate::listener::{Listener, Template, lock};
use crate::pollset;
use crate::value::handle::{Handle, Target};

/// A listening socket.
pub struct Listening {
    handle: Handle,
    /// The pollset that polls it.
    pollset: u16,
    /// Its index in `Listener::reactors`, if it belongs to a reactor.
    reactor: Option<usize>,
}

impl Listener {
    /// Makes a listening socket accept for this listener, or for the reactor that has the socket.
    /// A second call for the same socket updates its options.
    pub fn add_listening(&self, handle: Handle, pollset: u16, is_reactors: bool, template: Template) {
        for queue in &self.queues {
            // Each queue has a copy, so that their reference counts are in different cache lines.
            lock(&queue.waiting).template = Some(Arc::new(template.clone()));
        }
        let mut listening = lock(&self.listening);
        let before = listening.iter().position(|socket| socket.handle == handle).map(|at| listening.remove(at));
        let is_free = |place: &usize| listening.iter().all(|socket| socket.reactor != Some(*place));
        let reactor = match before {
            Some(socket) => socket.reactor,
            None => (0..self.reactors.len()).filter(|_| is_reactors).find(is_free),
        };
        listening.push(Listening { handle, pollset, reactor });
        self.note_reactor(reactor, pollset);
    }

    /// The listening sockets.
    pub fn listening(&self) -> Vec<Handle> {
        lock(&self.listening).iter().map(|socket| socket.handle).collect()
    }

    /// Notes that a listening socket has moved to another pollset.
    pub fn listening_moved(&self, moved: Handle, pollset: u16) {
        for socket in lock(&self.listening).iter_mut().filter(|socket| socket.handle == moved) {
            socket.pollset = pollset;
            self.note_reactor(socket.reactor, pollset);
        }
    }

    /// Notes that a listening socket is closed.
    pub fn remove_listening(&self, closed: Handle) {
        let mut listening = lock(&self.listening);
        if let Some(at) = listening.iter().position(|socket| socket.handle == closed) {
            self.note_reactor(listening.remove(at).reactor, 0);
        }
    }

    /// Notes the pollset of the entry `place`; zero if no reactor polls it.
    fn note_reactor(&self, place: Option<usize>, pollset: u16) {
        if let Some(place) = place {
            let is_reactors = usize::from(pollset) >= pollset::SCHEDULERS;
            self.reactors[place].store(if is_reactors { pollset } else { 0 }, Relaxed);
        }
    }

    /// Returns the pollset of the reactor with the fewest sockets, if these are fewer than 7/8 of
    /// those of `own`: the kernel spreads a thousand connections evenly, but not eight. `None` if
    /// connections come so fast that the kernel spreads them.
    pub fn reactor_with_fewer(&self, own: u16) -> Option<u16> {
        // Comparing costs more with every reactor, and the others write to these counters.
        if !self.comparisons.take(Nanos::now().seconds()) {
            return None;
        }
        let sockets = |pollset| pollset::counters(pollset).sockets.load(Relaxed);
        let pollsets = self.reactors.iter().map(|reactor| reactor.load(Relaxed)).filter(|&pollset| pollset != 0);
        let (fewest, pollset) = pollsets.map(|pollset| (sockets(pollset), pollset)).min()?;
        let has_more = sockets(own) > fewest + sockets(own) / 8;
        (has_more && pollset != own).then_some(pollset)
    }

    /// Puts all listening sockets on their ready lists.
    pub(super) fn resume(&self, env: Env) {
        for socket in lock(&self.listening).iter() {
            pollset::push_ready(env, socket.pollset, Target::Socket(socket.handle));
        }
    }
}
