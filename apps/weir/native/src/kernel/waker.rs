//! Wakes a thread that waits in epoll.

use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Result;

use crate::kernel::epoll::Epoll;

/// An eventfd in an epoll instance.
pub struct Waker {
    event: OwnedFd,
}

impl Waker {
    /// Adds one to an instance (eventfd(2) and epoll_ctl(2): EMFILE, ENFILE, ENOMEM, ENOSPC).
    pub fn new(epoll: &Epoll) -> Result<Waker> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        epoll.add_waker(event.as_fd())?;
        Ok(Waker { event })
    }

    /// Ends the current wait, or the next one.
    pub fn wake(&self) {
        // It is never read: each write is an edge of its own, and it is full only after 2^64
        // writes.
        let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
    }
}
