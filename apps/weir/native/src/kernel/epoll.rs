//! An epoll instance, edge-triggered.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{Timespec, epoll};
use rustix::io::Result;

use crate::value::handle::Target;

/// Events that one call takes from the kernel: a thousand busy connections are one batch, which was 3 % cheaper than four.
pub const BATCH: usize = 1024;

/// Whether the peer has closed, or the connection has failed.
pub fn is_hung_up(flags: epoll::EventFlags) -> bool {
    flags.intersects(epoll::EventFlags::RDHUP | epoll::EventFlags::HUP | epoll::EventFlags::ERR)
}

/// An epoll instance in which each descriptor is registered once, for all events, edge-triggered: an event says that
/// something has changed since the last one, and what was not used up is remembered by the socket, not by the kernel.
pub struct Epoll {
    fd: OwnedFd,
}

impl Epoll {
    /// A new instance (epoll_create1(2): EMFILE, ENFILE, ENOMEM).
    pub fn new() -> Result<Epoll> {
        Ok(Epoll { fd: epoll::create(epoll::CreateFlags::CLOEXEC)? })
    }

    /// Registers a descriptor; an event follows at once if it is ready already (epoll_ctl(2): ENOMEM, ENOSPC).
    /// Closing the descriptor takes it out again.
    pub fn add(&self, fd: BorrowedFd, target: Target) -> Result<()> {
        epoll::add(self.fd.as_fd(), fd, epoll::EventData::new_u64(target.raw()), events())
    }

    /// Has events of a descriptor name another target from now on; one follows at once if it is ready already.
    pub fn rename(&self, fd: BorrowedFd, target: Target) -> Result<()> {
        epoll::modify(self.fd.as_fd(), fd, epoll::EventData::new_u64(target.raw()), events())
    }

    /// Has a descriptor report no input until [`Epoll::rename`]: only output, and that the peer has hung up.
    pub fn mute(&self, fd: BorrowedFd, target: Target) -> Result<()> {
        let flags = events() - epoll::EventFlags::IN - epoll::EventFlags::PRI;
        epoll::modify(self.fd.as_fd(), fd, epoll::EventData::new_u64(target.raw()), flags)
    }

    /// Registers a descriptor whose events name nothing: they only end a wait.
    pub fn add_waker(&self, fd: BorrowedFd) -> Result<()> {
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(self.fd.as_fd(), fd, epoll::EventData::new_u64(u64::MAX), flags)
    }

    /// Registers another instance, to name `target` once when something of it is ready, and not before the next
    /// [`Epoll::arm`].
    pub fn add_instance(&self, other: &Epoll, target: Target) -> Result<()> {
        epoll::add(self.fd.as_fd(), other.fd.as_fd(), epoll::EventData::new_u64(target.raw()), once())
    }

    /// Has it named once more; an event follows at once if something is ready already.
    pub fn arm(&self, other: &Epoll, target: Target) -> Result<()> {
        epoll::modify(self.fd.as_fd(), other.fd.as_fd(), epoll::EventData::new_u64(target.raw()), once())
    }

    /// Takes it out.
    pub fn delete_instance(&self, other: &Epoll) -> Result<()> {
        self.delete(other.fd.as_fd())
    }

    /// Takes a descriptor out that stays open.
    pub fn delete(&self, fd: BorrowedFd) -> Result<()> {
        epoll::delete(self.fd.as_fd(), fd)
    }

    /// Takes what is ready into `space`, without waiting, and returns it.
    pub fn take<'a>(&self, space: &'a mut [MaybeUninit<epoll::Event>]) -> &'a [epoll::Event] {
        self.take_within(space, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))
    }

    /// The same after waiting until something is ready, for `limit` at most. Nothing where a signal has come.
    pub fn wait<'a>(&self, space: &'a mut [MaybeUninit<epoll::Event>], limit: Option<Duration>) -> &'a [epoll::Event] {
        let limit =
            limit.map(|limit| Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: limit.subsec_nanos().into() });
        self.take_within(space, limit.as_ref())
    }

    fn take_within<'a>(
        &self,
        space: &'a mut [MaybeUninit<epoll::Event>],
        limit: Option<&Timespec>,
    ) -> &'a [epoll::Event] {
        match epoll::wait(self.fd.as_fd(), space, limit) {
            Ok((events, _)) => events,
            // EINTR: the next call takes them. EBADF and EINVAL cannot be: the descriptor is ours.
            Err(_) => &[],
        }
    }
}

fn once() -> epoll::EventFlags {
    epoll::EventFlags::IN | epoll::EventFlags::ONESHOT
}

/// Urgent data (PRI) too, because reads stop at its mark.
fn events() -> epoll::EventFlags {
    epoll::EventFlags::IN
        | epoll::EventFlags::PRI
        | epoll::EventFlags::OUT
        | epoll::EventFlags::RDHUP
        | epoll::EventFlags::ET
}
