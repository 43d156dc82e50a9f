//! How a poller that waits in the kernel is woken for what the kernel does not know of.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Result;

use crate::kernel::epoll::Epoll;

/// An eventfd in the epoll instance that is waited for.
pub struct Waiter {
    event: OwnedFd,
    /// The poller waits, or is about to. Only touched under the lock of the ready list, which orders it.
    waits: AtomicBool,
}

impl Waiter {
    /// Nobody waits (eventfd(2) and epoll_ctl(2): EMFILE, ENFILE, ENOMEM, ENOSPC).
    pub fn new(epoll: &Epoll) -> Result<Waiter> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        epoll.add_waker(event.as_fd())?;
        Ok(Waiter { event, waits: AtomicBool::new(false) })
    }

    /// Notes whether a poller that goes to sleep now waits in the kernel.
    pub fn set(&self, waits: bool) {
        self.waits.store(waits, Relaxed);
    }

    /// Whether the poller that sleeps waits in the kernel.
    pub fn waits(&self) -> bool {
        self.waits.load(Relaxed)
    }

    /// Has the kernel name the epoll instance as ready.
    pub fn wake(&self) {
        // It is never read, as each write is an edge of its own, and not full before 2^64 of them.
        let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
    }
}
