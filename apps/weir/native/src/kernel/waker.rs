//! How a thread that waits in the kernel is woken for what the kernel does not know of.

use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Result;

use crate::kernel::epoll::Epoll;

/// An eventfd in the epoll instance that is waited for.
pub struct Waker {
    event: OwnedFd,
}

impl Waker {
    /// One for an instance (eventfd(2) and epoll_ctl(2): EMFILE, ENFILE, ENOMEM, ENOSPC).
    pub fn new(epoll: &Epoll) -> Result<Waker> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        epoll.add_waker(event.as_fd())?;
        Ok(Waker { event })
    }

    /// Ends the wait, or the next one.
    pub fn wake(&self) {
        // It is never read, as each write is an edge of its own, and not full before 2^64 of them.
        let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
    }
}
