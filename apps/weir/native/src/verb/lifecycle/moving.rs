//! Sockets that go elsewhere: to a reactor and back, to another pollset, into a relay.

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

/// What a socket has given away.
pub struct Surrendered {
    pub fd: OwnedFd,
    /// The descriptor was opened by somebody else, who also closes it.
    pub borrowed: bool,
    /// What the kernel has said of its input: as of a connection that is not registered yet.
    pub readable: Readable,
    /// What was read and not taken by anybody.
    pub input: InputBuffer,
    /// What the kernel has not taken yet.
    pub queued: SendQueue<Held>,
    /// What the connection gives back to the listener through which it came.
    pub permit: Option<Permit>,
}

impl Surrendered {
    /// A connection that was no socket, and has nothing but its descriptor.
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
    /// Makes the socket one of the reactor that calls, whose socket it is already, on the reactor's pollset.
    pub fn join_reactor(&mut self, env: Env, pollset: u16) -> rustix::io::Result<()> {
        let from = self.pollset;
        let moved = self.relocate(env, pollset);
        if moved.is_ok() {
            self.become_reactors(env);
        }
        // As a reactor's: where a message that was on its way finds the end of the connection, the reactor hears of it.
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

    /// Makes a reactor's socket an ordinary, passive one of `owner` on another pollset. False if that process is dead.
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
            // The kernel says it again.
            self.readable.try_again();
        }
        self.move_to(env, pollset)?;
        Ok(true)
    }

    /// Takes the socket to another pollset. What was ready stays ready. What its groups write to it there may be its end.
    pub fn move_to(&mut self, env: Env, target: u16) -> rustix::io::Result<()> {
        let from = self.pollset;
        let moved = self.relocate(env, target);
        chaos::between();
        self.follow(env, from);
        moved
    }

    /// Takes the memberships to the pollset where the socket is by now.
    fn follow(&mut self, env: Env, from: u16) {
        if self.pollset != from && !self.groups.is_empty() {
            delivery::moved(env, self, from);
        }
    }

    /// Whether the socket can become one side of a relay of the calling process; the reason if not.
    pub fn can_surrender(&self, env: Env) -> Result<(), Reason> {
        if self.lingering {
            return Err(atoms::closed());
        }
        if self.owner != Some(env.pid()) {
            return Err(atoms::not_owner());
        }
        // The reactor keeps a state for it, and would not hear that it is gone.
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

    /// Gives the descriptor away that was lent to `pollset`, with what has been read and what is queued, and closes the
    /// socket to everybody. Nothing is given where there is no descriptor.
    pub fn surrender(&mut self, env: Env, pollset: u16) -> Option<Surrendered> {
        let fd = self.fd.take()?;
        if std::mem::replace(&mut self.registered, false) && self.pollset != pollset {
            let _ = pollset::epoll(self.pollset).delete(fd.as_fd());
        }
        if self.options.linger != Linger::Off {
            // It is for a close by the user, and would have one of ours wait, or throw away what the kernel has.
            let off = libc::linger { l_onoff: 0, l_linger: 0 };
            let _ = sockopt::set(fd.as_fd(), libc::SOL_SOCKET, libc::SO_LINGER, &off);
        }
        let input = self.input.take().map_or_else(InputBuffer::default, |input| *input);
        let queued = match &mut self.output {
            Some(output) => std::mem::replace(&mut output.queue, SendQueue::new()),
            None => SendQueue::new(),
        };
        // Where it is not, `can_surrender` has said so.
        let queued = queued.into_memory().unwrap_or_else(SendQueue::new);
        let (borrowed, permit, readable) = (self.prebound, self.permit.take(), Readable::new(self.options.local));
        self.release(env);
        Some(Surrendered { fd, borrowed, readable, input, queued, permit })
    }
}
