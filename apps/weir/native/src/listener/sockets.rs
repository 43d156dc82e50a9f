//! The listening sockets of a listener: where they are polled, and which of them are reactors'.

use std::sync::Arc;

use rustler::Env;

use crate::listener::{Listener, Template, lock};
use crate::pollset;
use crate::value::handle::{Handle, Target};

/// A listening socket.
pub struct Listening {
    pub(super) handle: Handle,
    /// Where it is polled.
    pollset: u16,
    /// The queue through which others give connections to the reactor that has it.
    pub(super) queue: Option<usize>,
}

impl Listening {
    /// Has it visited at the next poll.
    pub(super) fn visit(&self, env: Env) {
        pollset::push_ready(env, self.pollset, Target::Socket(self.handle));
    }
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
        let is_free = |queue: &usize| listening.iter().all(|socket| socket.queue != Some(*queue));
        let queue = match before {
            Some(socket) => socket.queue,
            None => (0..self.queues.len()).filter(|_| is_reactors).find(is_free),
        };
        listening.push(Listening { handle, pollset, queue });
        self.note_reactor(queue, pollset);
    }

    /// The listening sockets.
    pub fn listening(&self) -> Vec<Handle> {
        lock(&self.listening).iter().map(|socket| socket.handle).collect()
    }

    /// A listening socket has gone to another pollset.
    pub fn listening_moved(&self, moved: Handle, pollset: u16) {
        for socket in lock(&self.listening).iter_mut().filter(|socket| socket.handle == moved) {
            socket.pollset = pollset;
            self.note_reactor(socket.queue, pollset);
        }
    }

    /// A listening socket is closed. What others have given to its reactor is anybody's.
    pub fn remove_listening(&self, env: Env, closed: Handle) {
        let removed = {
            let mut listening = lock(&self.listening);
            listening.iter().position(|socket| socket.handle == closed).map(|at| listening.remove(at))
        };
        if let Some(Listening { queue: Some(queue), .. }) = removed {
            self.note_reactor(Some(queue), 0);
            if self.length(queue) > 0 {
                self.resume(env);
            }
        }
    }

    /// Has all listening sockets visited at the next poll.
    pub(super) fn resume(&self, env: Env) {
        lock(&self.listening).iter().for_each(|socket| socket.visit(env));
    }
}
