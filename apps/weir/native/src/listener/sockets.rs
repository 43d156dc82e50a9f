//! The listening sockets of a listener: where they are polled, and which of them are reactors'.

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
    /// Where it is polled.
    pollset: u16,
    /// Where the pollset stands among those of reactors.
    reactor: Option<usize>,
}

impl Listener {
    /// A listening socket accepts for this listener from now on, by itself or for the reactor that has it. Said again, it has other
    /// options.
    pub fn add_listening(&self, handle: Handle, pollset: u16, is_reactors: bool, template: Template) {
        for queue in &self.queues {
            // Each has its own, so that those who count the references do not write to the same line.
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

    /// A listening socket has gone to another pollset.
    pub fn listening_moved(&self, moved: Handle, pollset: u16) {
        for socket in lock(&self.listening).iter_mut().filter(|socket| socket.handle == moved) {
            socket.pollset = pollset;
            self.note_reactor(socket.reactor, pollset);
        }
    }

    /// A listening socket is closed.
    pub fn remove_listening(&self, closed: Handle) {
        let mut listening = lock(&self.listening);
        if let Some(at) = listening.iter().position(|socket| socket.handle == closed) {
            self.note_reactor(listening.remove(at).reactor, 0);
        }
    }

    /// The socket in this place is polled there now, perhaps by a reactor.
    fn note_reactor(&self, place: Option<usize>, pollset: u16) {
        if let Some(place) = place {
            let is_reactors = usize::from(pollset) >= pollset::SCHEDULERS;
            self.reactors[place].store(if is_reactors { pollset } else { 0 }, Relaxed);
        }
    }

    /// The pollset of the reactor with the fewest sockets, if those are clearly fewer than what the one of `own` has: the kernel spreads a
    /// thousand connections evenly, and eight not. Nothing, too, if connections come so fast that the kernel does.
    pub fn reactor_with_fewer(&self, own: u16) -> Option<u16> {
        // To look at all costs more the more there are, and the others write there.
        if !self.comparisons.take(Nanos::now().seconds()) {
            return None;
        }
        let sockets = |pollset| pollset::counters(pollset).sockets.load(Relaxed);
        let pollsets = self.reactors.iter().map(|reactor| reactor.load(Relaxed)).filter(|&pollset| pollset != 0);
        let (fewest, pollset) = pollsets.map(|pollset| (sockets(pollset), pollset)).min()?;
        let has_more = sockets(own) > fewest + sockets(own) / 8;
        (has_more && pollset != own).then_some(pollset)
    }

    /// Has all listening sockets visited at the next poll.
    pub(super) fn resume(&self, env: Env) {
        for socket in lock(&self.listening).iter() {
            pollset::push_ready(env, socket.pollset, Target::Socket(socket.handle));
        }
    }
}
