//! Moves sockets: to a reactor and back, to another pollset, into a relay.

use std::os::fd::{AsFd, OwnedFd};

use rustler::{Env, LocalPid};

use crate::kernel::sockopt;
use crate::listener::permit::Permit;
use crate::pollset;
use crate::socket::message;
use crate::socket::{Ended, Reason, Socket, State};
use crate::term::atoms;
use crate::term::held::Held;
use crate::value::active::Active;
use crate::value::chaos;
use crate::value::input_buffer::InputBuffer;
use crate::value::options::Linger;
use crate::value::readable::Readable;
use crate::value::send_queue::SendQueue;
use crate::verb::group::delivery;

/// What a socket gives to a relay.
pub struct Surrendered {
    pub fd: OwnedFd,
    /// The descriptor was opened elsewhere, and is closed there.
    pub borrowed: bool,
    /// The state of its input, as for a connection that is not registered yet.
    pub readable: Readable,
    /// Bytes that were read and not delivered.
    pub input: InputBuffer,
    /// Bytes that the kernel has not taken yet.
    pub queued: SendQueue<Held>,
    /// The permit of the listener through which the connection came.
    pub permit: Option<Permit>,
}

impl Surrendered {
    /// A connection that was never a socket: only a descriptor.
    pub fn new(fd: OwnedFd, local: bool) -> Surrendered {
        let readable = Readable::new(local);
        Surrendered {
            fd,
            borrowed: false,
            readable,
            input: InputBuffer::default(),
            queued: SendQueue::new(),
            permit: None,
        }
    }
}

impl Socket {
    /// Makes a socket that the calling reactor owns one of its connections, on its pollset.
    pub fn join_reactor(&mut self, env: Env, pollset: u16) -> rustix::io::Result<()> {
        let from = self.pollset;
        let moved = self.relocate(env, pollset);
        if moved.is_ok() {
            self.become_reactors(env);
        }
        // The socket belongs to the reactor by now, so an end found while sending pending messages
        // is reported to it.
        self.follow(env, from);
        moved
    }

    fn become_reactors(&mut self, env: Env) {
        if self.watched.as_ref().is_some_and(|watched| watched.subscribers.is_empty()) {
            self.watched = None;
        }
        if let Some(output) = &mut self.output {
            // A reactor does not wait at the queue.
            output.full = false;
        }
        self.reactor = true;
        self.options.active = Active::Always;
        self.enqueue(env);
    }

    /// Makes a reactor's socket an ordinary passive socket of `owner`, on another pollset. False
    /// if that process is dead.
    pub fn leave_reactor(&mut self, env: Env, owner: LocalPid, pollset: u16) -> rustix::io::Result<bool> {
        if !self.watch(env, &owner) {
            return Ok(false);
        }
        self.owner = Some(owner);
        self.begin_telling(env, None);
        self.reactor = false;
        self.throttled = false;
        if std::mem::take(&mut self.served) {
            message::served(env, self);
        }
        self.options.active = Active::Passive;
        if std::mem::replace(&mut self.ended, Ended::Not) != Ended::Not {
            // The next read finds the end again.
            self.readable.try_again();
        }
        self.move_to(env, pollset)?;
        Ok(true)
    }

    /// Moves the socket to another pollset; it is visited there. Pending messages of its groups
    /// are written to it, which may end it.
    pub fn move_to(&mut self, env: Env, target: u16) -> rustix::io::Result<()> {
        let from = self.pollset;
        let moved = self.relocate(env, target);
        chaos::between();
        self.follow(env, from);
        moved
    }

    /// Moves the memberships to the socket's present pollset.
    fn follow(&mut self, env: Env, from: u16) {
        if self.pollset != from && !self.groups.is_empty() {
            delivery::moved(env, self, from);
        }
    }

    /// Checks whether the socket can join a relay of the calling process; returns the reason if
    /// not.
    pub fn can_surrender(&self, env: Env) -> Result<(), Reason> {
        if self.lingering {
            return Err(atoms::closed());
        }
        if self.owner != Some(env.pid()) {
            return Err(atoms::not_owner());
        }
        // The reactor has state for it, and would not learn that it is gone.
        if self.reactor {
            return Err(atoms::reactor());
        }
        if self.state != State::Connected || self.fd.is_none() {
            return Err(atoms::enotconn());
        }
        match &self.output {
            Some(output) if output.is_closing(env) => Err(atoms::closed()),
            Some(output) if output.transfer.is_some() => Err(atoms::ebusy()),
            Some(output) if output.queue.in_memory() < output.queue.len() => Err(atoms::ebusy()),
            Some(output) if output.shutdown.is_some() => Err(atoms::epipe()),
            _ => Ok(()),
        }
    }

    /// Gives away the descriptor, which was lent to `pollset`, with the bytes that were read and
    /// those that are queued. Closes the socket for all processes. `None` if there is no
    /// descriptor.
    pub fn surrender(&mut self, env: Env, pollset: u16) -> Option<Surrendered> {
        let fd = self.fd.take()?;
        if std::mem::replace(&mut self.registered, false) && self.pollset != pollset {
            let _ = pollset::epoll(self.pollset).delete(fd.as_fd());
        }
        if self.options.linger != Linger::Off {
            // Linger is for a close by the user. A close by the relay would wait, or discard data
            // in the kernel.
            let off = libc::linger { l_onoff: 0, l_linger: 0 };
            let _ = sockopt::set(fd.as_fd(), libc::SOL_SOCKET, libc::SO_LINGER, &off);
        }
        let input = self.input.take().map_or_else(InputBuffer::default, |input| *input);
        let queued = match &mut self.output {
            Some(output) => std::mem::replace(&mut output.queue, SendQueue::new()),
            None => SendQueue::new(),
        };
        // `can_surrender` has ruled out files in the queue.
        let queued = queued.into_memory().unwrap_or_else(SendQueue::new);
        let (borrowed, permit, readable) = (self.prebound, self.permit.take(), Readable::new(self.options.local));
        self.release(env);
        Some(Surrendered { fd, borrowed, readable, input, queued, permit })
    }
}
