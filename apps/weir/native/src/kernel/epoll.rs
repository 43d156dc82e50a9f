//! An epoll instance, edge-triggered.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use rustix::event::{PollFd, PollFlags, Timespec, epoll};
use rustix::io::Result;

use crate::value::handle::Target;

/// Events that one call takes from the kernel: a thousand busy connections are one batch, which was 3 % cheaper than four.
pub const BATCH: usize = 1024;

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

    /// The instance's own descriptor, which is readable when an event waits.
    pub fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
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
        let flags = events() - epoll::EventFlags::IN;
        epoll::modify(self.fd.as_fd(), fd, epoll::EventData::new_u64(target.raw()), flags)
    }

    /// Registers a descriptor whose events name nothing: they only end a wait.
    pub fn add_waker(&self, fd: BorrowedFd) -> Result<()> {
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(self.fd.as_fd(), fd, epoll::EventData::new_u64(u64::MAX), flags)
    }

    /// Takes a descriptor out that stays open.
    pub fn delete(&self, fd: BorrowedFd) -> Result<()> {
        epoll::delete(self.fd.as_fd(), fd)
    }

    /// Waits until something is ready, for `limit` at most, and takes nothing.
    pub fn wait(&self, limit: Timespec) {
        // EINTR: whoever waits looks for himself.
        let _ = rustix::event::poll(&mut [PollFd::new(&self.fd, PollFlags::IN)], Some(&limit));
    }

    /// Takes what is ready into `space`, without waiting, and returns it.
    pub fn take<'a>(&self, space: &'a mut [MaybeUninit<epoll::Event>]) -> &'a [epoll::Event] {
        const NO_WAIT: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };
        match epoll::wait(self.fd.as_fd(), space, Some(&NO_WAIT)) {
            Ok((events, _)) => events,
            // EINTR: the next poll takes them. EBADF and EINVAL cannot be: the descriptor is ours.
            Err(_) => &[],
        }
    }
}

fn events() -> epoll::EventFlags {
    epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::RDHUP | epoll::EventFlags::ET
}
