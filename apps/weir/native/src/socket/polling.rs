//! A socket and its pollset: the ready list, the epoll instance, moving to another pollset,
//! lending to a relay.

use std::os::fd::AsFd;
use std::sync::atomic::Ordering::Relaxed;

use rustix::io::Errno;
use rustix::net::Shutdown;
use rustler::Env;

use crate::pollset;
use crate::socket::{Socket, State};
use crate::value::counters::add;
use crate::value::handle::Target;

impl Socket {
    /// Adds the descriptor to the pollset's epoll instance, unless it is in there.
    pub fn register(&mut self) -> rustix::io::Result<()> {
        if self.registered {
            return Ok(());
        }
        if let Some(fd) = &self.fd {
            pollset::epoll(self.pollset).add(fd.as_fd(), Target::Socket(self.handle()))?;
            self.registered = true;
        }
        Ok(())
    }

    /// Puts the socket on its pollset's ready list, to be visited at the next poll.
    pub fn enqueue(&mut self, env: Env) {
        if !self.queued {
            self.queued = true;
            pollset::push_ready(env, self.pollset, Target::Socket(self.handle()));
        }
    }

    /// Marks the socket as broken after a panic. The unwinding code has no environment in which it
    /// could close it, so the shutdown here makes the kernel report it, and the next visit closes
    /// it.
    pub fn break_off(&mut self) {
        // A panic during accept leaves the listening socket itself consistent.
        if self.state == State::Listening {
            return;
        }
        let counters = pollset::counters(self.pollset);
        add(&counters.faults, 1);
        if std::mem::replace(&mut self.broken, true) {
            // Closing it has panicked too; do not try again.
            counters.sockets.fetch_sub(1, Relaxed);
            return self.vacate();
        }
        let _ = self.register();
        if let Some(fd) = self.fd.as_ref().filter(|_| !self.prebound) {
            let _ = rustix::net::shutdown(fd.as_fd(), Shutdown::Both);
        }
        self.queued = true;
        pollset::get(self.pollset).ready.keep(Target::Socket(self.handle()));
    }

    /// Moves the socket, but not its memberships of groups, to another pollset. It is visited
    /// there.
    pub fn relocate(&mut self, env: Env, target: u16) -> rustix::io::Result<()> {
        if target == self.pollset {
            return Ok(());
        }
        let from = self.pollset;
        let moved = self.change_pollset(target);
        self.count_move(from);
        // The old list still names the socket; that visit finds nothing to do.
        self.queued = false;
        self.enqueue(env);
        moved
    }

    /// Moves the socket to another pollset, and visits it there only if a visit was pending here.
    pub fn go(&mut self, env: Env, target: u16) -> rustix::io::Result<()> {
        let (from, was_there) = (self.pollset, self.registered);
        let moved = self.change_pollset(target);
        if was_there {
            self.count_move(from);
        }
        if std::mem::replace(&mut self.queued, false) {
            self.enqueue(env);
        }
        moved
    }

    fn count_move(&self, from: u16) {
        if self.pollset != from {
            add(&pollset::counters(from).moved_out, 1);
            add(&pollset::counters(self.pollset).moved_in, 1);
        }
    }

    /// After an error the socket is on one of the two pollsets, and perhaps not registered.
    fn change_pollset(&mut self, target: u16) -> rustix::io::Result<()> {
        if self.registered
            && let Some(fd) = &self.fd
        {
            pollset::epoll(self.pollset).delete(fd.as_fd())?;
        }
        let was_registered = std::mem::replace(&mut self.registered, false);
        pollset::counters(self.pollset).sockets.fetch_sub(1, Relaxed);
        pollset::counters(target).sockets.fetch_add(1, Relaxed);
        self.pollset = target;
        if let Some((listener, _)) = self.listening.as_ref().and_then(|listening| listening.listener.as_ref()) {
            listener.listening_moved(self.handle(), target);
        }
        // Registering reports again what is ready.
        if was_registered { self.register() } else { Ok(()) }
    }

    /// Makes a pollset report another target for the descriptor, until
    /// [`take_back`](Self::take_back).
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
        // Renaming and deleting a registered descriptor cannot fail.
        let _ = match self.registered && self.pollset == pollset {
            true => epoll.rename(fd.as_fd(), Target::Socket(self.handle())),
            false => epoll.delete(fd.as_fd()),
        };
    }
}
