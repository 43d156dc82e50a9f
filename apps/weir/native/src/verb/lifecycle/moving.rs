//! Sockets that go elsewhere: to a reactor and back, to another pollset, into a relay.

use std::os::fd::{AsFd, OwnedFd};

use rustix::io::Errno;
use rustler::{Env, LocalPid};

use crate::kernel::sockopt;
use crate::pollset;
use crate::socket::{Ended, Reason, Socket, State};
use crate::term::atoms;
use crate::term::held::Held;
use crate::value::active::Active;
use crate::value::handle::Target;
use crate::value::input_buffer::InputBuffer;
use crate::value::options::Linger;
use crate::value::send_queue::SendQueue;
use crate::verb::group;

/// What a socket has given away.
pub struct Surrendered {
    pub fd: OwnedFd,
    /// The descriptor was opened by somebody else, who also closes it.
    pub borrowed: bool,
    /// What was read and not taken by anybody.
    pub input: InputBuffer,
    /// What the kernel has not taken yet.
    pub queued: SendQueue<Held>,
}

impl Socket {
    /// Makes the socket one of the reactor that calls, whose socket it is already, on the reactor's pollset.
    pub fn join_reactor(&mut self, env: Env, pollset: u16) -> rustix::io::Result<()> {
        self.move_to(env, pollset)?;
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
        Ok(())
    }

    /// Makes a reactor's socket an ordinary, passive one of `owner` on another pollset. False if that process is dead.
    pub fn leave_reactor(&mut self, env: Env, owner: LocalPid, pollset: u16) -> rustix::io::Result<bool> {
        if !self.watch(env, &owner) {
            return Ok(false);
        }
        self.owner = Some(owner);
        self.reactor = false;
        self.throttled = false;
        self.options.active = Active::Passive;
        if std::mem::replace(&mut self.ended, Ended::Not) != Ended::Not {
            // The kernel says it again.
            self.readable = true;
        }
        self.move_to(env, pollset)?;
        Ok(true)
    }

    /// Takes the socket to another pollset. What was ready stays ready.
    pub fn move_to(&mut self, env: Env, target: u16) -> rustix::io::Result<()> {
        use std::sync::atomic::Ordering::Relaxed;
        if target == self.pollset {
            return Ok(());
        }
        if self.registered
            && let Some(fd) = &self.fd
        {
            pollset::epoll(self.pollset).delete(fd.as_fd())?;
        }
        let was_registered = std::mem::replace(&mut self.registered, false);
        let (from, to) = (pollset::counters(self.pollset), pollset::counters(target));
        from.sockets.fetch_sub(1, Relaxed);
        from.moved_out.fetch_add(1, Relaxed);
        to.sockets.fetch_add(1, Relaxed);
        to.moved_in.fetch_add(1, Relaxed);
        let from_pollset = std::mem::replace(&mut self.pollset, target);
        if let Some((gate, _)) = self.listener.as_ref().and_then(|listener| listener.gate.as_ref()) {
            gate.listening_moved(self.handle(), target);
        }
        // The old list still names the socket; that visit is a spurious one.
        self.queued = false;
        self.enqueue(env);
        if !self.groups.is_empty() {
            group::moved(env, self, from_pollset);
        }
        // Registration reports anew whatever is ready.
        if was_registered { self.register() } else { Ok(()) }
    }

    /// Whether the socket can become one side of a relay of `pid`; the reason if not.
    pub fn can_surrender(&self, pid: LocalPid) -> Result<(), Reason> {
        if self.lingering {
            return Err(atoms::closed());
        }
        if self.owner != Some(pid) {
            return Err(atoms::not_owner());
        }
        if self.state != State::Connected || self.fd.is_none() {
            return Err(atoms::enotconn());
        }
        match &self.output {
            Some(output) if output.closing => Err(atoms::closed()),
            Some(output) if output.transfer.is_some() => Err(atoms::ebusy()),
            Some(output) if output.shutdown.is_some() => Err(atoms::epipe()),
            _ => Ok(()),
        }
    }

    /// Has a pollset name another target for the descriptor; [`take_back`](Self::take_back) undoes it.
    pub fn lend(&self, pollset: u16, target: Target) -> rustix::io::Result<()> {
        let Some(fd) = &self.fd else { return Err(Errno::BADF) };
        let epoll = pollset::epoll(pollset);
        match self.registered && self.pollset == pollset {
            true => epoll.rename(fd.as_fd(), target),
            false => epoll.add(fd.as_fd(), target),
        }
    }

    /// Undoes [`lend`](Self::lend).
    pub fn take_back(&self, pollset: u16) {
        let Some(fd) = &self.fd else { return };
        let epoll = pollset::epoll(pollset);
        // What was registered can be renamed and taken out.
        let _ = match self.registered && self.pollset == pollset {
            true => epoll.rename(fd.as_fd(), Target::Socket(self.handle())),
            false => epoll.delete(fd.as_fd()),
        };
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
        let borrowed = self.prebound;
        self.release(env);
        Some(Surrendered { fd, borrowed, input, queued })
    }
}
