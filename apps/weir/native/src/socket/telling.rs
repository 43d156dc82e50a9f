//! Who may send the owner the messages whose order counts: data, and that the socket is passive, has failed, is closed.
//!
//! The VM keeps those of one sender in order. A queue off the heap has a buffer for each of 64 groups of senders, from which
//! the receiver takes one after the other. So a socket has one sender at a time, mostly the poller of its pollset. Another
//! one follows when the owner has taken all buffers into its queue. The owner makes sure of that itself when it asks for data
//! that waits; for a poller that follows another one, a process does (`weir_succession`).

use rustler::{Encoder, Env, LocalPid};

use crate::pollset;
use crate::socket::{Ended, Socket, State};
use crate::term::atoms;
use crate::term::sender;

/// The sender of the last message.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Teller {
    /// There was no message to this owner, or all are in its queue: any process may send the next one.
    Nobody,
    /// A message of another process could come before the last one.
    Process(LocalPid),
    /// Messages have no sender, and are in order whichever process sends them.
    Anybody,
}

/// How the queue of an owner is kept.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Queue {
    /// Without buffers: messages are in the order in which they were sent.
    OnHeap,
    OffHeap,
}

/// The right to send the owner such a message, while the socket is locked.
#[derive(Clone, Copy)]
pub struct Voice<'a> {
    env: Env<'a>,
    anonymous: bool,
}

impl<'a> Voice<'a> {
    /// The environment in which messages are built.
    pub fn env(&self) -> Env<'a> {
        self.env
    }

    /// Sends the owner a message.
    pub fn tell(&self, socket: &mut Socket, message: impl Encoder) {
        socket.told = socket.told.wrapping_add(1);
        // An owner that died meanwhile closes the socket by its monitor; nothing is to be done here.
        if let Some(owner) = &socket.owner {
            match self.anonymous {
                true => sender::send_anonymously(self.env, owner, message),
                false => drop(self.env.send(owner, message)),
            }
        }
    }
}

impl Socket {
    /// Whether the caller may send the owner messages, without becoming the sender by that.
    pub fn is_told_by_caller(&self, env: Env) -> bool {
        match self.teller {
            Teller::Anybody => true,
            Teller::Process(teller) => sender::caller(env) == Some(teller),
            Teller::Nobody => false,
        }
    }

    /// Whether the caller is the owner, to which no message is on its way.
    pub fn may_begin_telling(&self, env: Env) -> bool {
        self.teller == Teller::Nobody && self.owner.is_some() && self.owner == sender::caller(env)
    }

    /// Whether the caller is the owner and was the last to send itself messages, and waits for those of the poller now.
    pub fn awaits_others(&self, env: Env) -> bool {
        self.state == State::Connected
            && self.is_active()
            && !self.reactor
            && self.owner.is_some_and(|owner| self.teller == Teller::Process(owner))
            && self.owner == sender::caller(env)
    }

    /// A process that wanted to send since message number `told`, and had nothing, is not the sender.
    pub fn forget_silence(&mut self, from: Teller, told: u32) {
        if from == Teller::Nobody && self.told == told && matches!(self.teller, Teller::Process(_)) {
            self.teller = Teller::Nobody;
        }
    }

    /// Makes the caller the sender. None if another one was, and the owner may not have taken its messages.
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

    /// Leaves messages to the poller. If the caller is the poller, it goes on when the owner has taken those of the sender
    /// before.
    pub fn leave_telling(&mut self, env: Env) {
        if self.unsettled {
            return;
        }
        if !sender::caller(env).is_some_and(|caller| pollset::is_polled_by(self.pollset, caller)) {
            return self.enqueue(env);
        }
        self.unsettled = true;
        // One that is started later looks for those that wait.
        if let Some(succession) = env.whereis_pid(atoms::weir_succession()) {
            let _ = env.send(&succession, (atoms::weir_unsettled(), self.handle().raw()));
        }
    }

    /// The owner has taken all messages that were sent into its queue.
    pub fn settle(&mut self, queue: Queue) {
        self.teller = match queue {
            Queue::OnHeap => Teller::Nobody,
            Queue::OffHeap => Teller::Anybody,
        };
        self.unsettled = false;
    }

    /// There is a new owner, which has got no message, or some from `forwarded`.
    pub fn begin_telling(&mut self, env: Env, forwarded: Option<LocalPid>) {
        self.teller = forwarded.map_or(Teller::Nobody, Teller::Process);
        self.told = self.told.wrapping_add(1);
        if std::mem::take(&mut self.unsettled) {
            self.enqueue(env);
        }
    }

    /// Whether something was left to the poller to tell.
    pub fn has_untold(&self) -> bool {
        self.passive_untold || (self.ended != Ended::Not && !self.reactor)
    }
}
