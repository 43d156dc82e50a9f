//! Which process may send the owner messages whose order matters: data, passive, errors, close.
//!
//! The VM keeps messages of one sender in order. A message queue off the heap has 64 buffers, each
//! for a group of senders, and the receiver empties one after another. So a socket has one sender
//! at a time, usually the poller of its pollset. Another process can become the sender when the
//! owner has moved all buffers into its queue. The owner ensures this itself when it asks for
//! waiting data; for a new poller, `weir_succession` does.

use rustler::{Encoder, Env, LocalPid};

use crate::pollset;
use crate::socket::{Ended, Socket, State};
use crate::term::atoms;
use crate::term::sender;

/// The sender of the last message.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Teller {
    /// No message was sent to this owner, or all are in its queue: any process may send the next
    /// one.
    Nobody,
    /// A message of another process could overtake the last one.
    Process(LocalPid),
    /// Messages have no sender, so the VM keeps them in order whichever process sends them.
    Anybody,
}

/// How the VM keeps the message queue of an owner.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Queue {
    /// No buffers: messages are in the order of sending.
    OnHeap,
    OffHeap,
}

/// The right to send the owner messages while the socket is locked.
#[derive(Clone, Copy)]
pub struct Voice<'a> {
    env: Env<'a>,
    anonymous: bool,
}

impl<'a> Voice<'a> {
    /// The environment for building messages.
    pub fn env(&self) -> Env<'a> {
        self.env
    }

    /// Sends the owner a message.
    pub fn tell(&self, socket: &mut Socket, message: impl Encoder) {
        socket.told = socket.told.wrapping_add(1);
        // The monitor closes the socket of a dead owner.
        if let Some(owner) = &socket.owner {
            match self.anonymous {
                true => sender::send_anonymously(self.env, owner, message),
                false => drop(self.env.send(owner, message)),
            }
        }
    }
}

impl Socket {
    /// Whether the caller may send messages to the owner without becoming the sender.
    pub fn is_told_by_caller(&self, env: Env) -> bool {
        match self.teller {
            Teller::Anybody => true,
            Teller::Process(teller) => sender::caller(env) == Some(teller),
            Teller::Nobody => false,
        }
    }

    /// Whether the caller is the owner, and no message to it is on its way.
    pub fn may_begin_telling(&self, env: Env) -> bool {
        self.teller == Teller::Nobody && self.owner.is_some() && self.owner == sender::caller(env)
    }

    /// Whether the caller is the owner, is the current sender itself, and now waits for messages
    /// of the poller.
    pub fn awaits_others(&self, env: Env) -> bool {
        self.state == State::Connected
            && self.is_active()
            && !self.reactor
            && self.owner.is_some_and(|owner| self.teller == Teller::Process(owner))
            && self.owner == sender::caller(env)
    }

    /// Gives up the right to send if the process that took it after message `told` has sent
    /// nothing.
    pub fn forget_silence(&mut self, from: Teller, told: u32) {
        if from == Teller::Nobody && self.told == told && matches!(self.teller, Teller::Process(_)) {
            self.teller = Teller::Nobody;
        }
    }

    /// Makes the caller the sender. `None` if another process is, and the owner may not have taken
    /// its messages.
    pub fn voice<'a>(&mut self, env: Env<'a>) -> Option<Voice<'a>> {
        match (self.teller, sender::caller(env)) {
            (Teller::Anybody, _) => Some(Voice { env, anonymous: true }),
            (Teller::Process(teller), caller) => (caller == Some(teller)).then_some(Voice { env, anonymous: false }),
            (Teller::Nobody, Some(caller)) => {
                self.teller = Teller::Process(caller);
                Some(Voice { env, anonymous: false })
            }
            (Teller::Nobody, None) => {
                self.teller = Teller::Anybody;
                Some(Voice { env, anonymous: true })
            }
        }
    }

    /// Leaves messages to the poller. If the caller is the poller, it continues when the owner has
    /// taken the messages of the previous sender.
    pub fn leave_telling(&mut self, env: Env) {
        if self.unsettled {
            return;
        }
        if !sender::caller(env).is_some_and(|caller| pollset::is_polled_by(self.pollset, caller)) {
            return self.enqueue(env);
        }
        self.unsettled = true;
        // If it is not running, it looks for waiting sockets when it starts.
        if let Some(succession) = env.whereis_pid(atoms::weir_succession()) {
            let _ = env.send(&succession, (atoms::weir_unsettled(), self.handle().raw()));
        }
    }

    /// Notes that the owner has all messages in its queue.
    pub fn settle(&mut self, queue: Queue) {
        self.teller = match queue {
            Queue::OnHeap => Teller::Nobody,
            Queue::OffHeap => Teller::Anybody,
        };
        self.unsettled = false;
    }

    /// Starts with a new owner, which has no messages yet, or some from `forwarded`.
    pub fn begin_telling(&mut self, env: Env, forwarded: Option<LocalPid>) {
        self.teller = forwarded.map_or(Teller::Nobody, Teller::Process);
        self.told = self.told.wrapping_add(1);
        if std::mem::take(&mut self.unsettled) {
            self.enqueue(env);
        }
    }

    /// Whether the poller still has something to tell the owner.
    pub fn has_untold(&self) -> bool {
        self.passive_untold || (self.ended != Ended::Not && !self.reactor)
    }
}
