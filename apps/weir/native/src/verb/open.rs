//! Opens descriptors for sockets: in the default or another network namespace, or from a
//! descriptor that was opened elsewhere.

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;

use libc::c_int;
use rustix::io::{Errno, Result};
use rustix::net::{AddressFamily, SocketAddrAny, SocketFlags, SocketType, ipproto, socket_with};
use rustler::{Atom, Decoder, Error, NifResult, Term};

use crate::kernel::sockopt;
use crate::socket::State;
use crate::term::atoms;

/// An address family with stream sockets.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Family {
    Inet,
    Inet6,
    Local,
}

impl Family {
    /// The family of an address. EAFNOSUPPORT for any other family.
    pub fn of(address: &SocketAddrAny) -> Result<Family> {
        match address.address_family() {
            AddressFamily::INET => Ok(Family::Inet),
            AddressFamily::INET6 => Ok(Family::Inet6),
            AddressFamily::UNIX => Ok(Family::Local),
            _ => Err(Errno::AFNOSUPPORT),
        }
    }

    fn domain(self) -> AddressFamily {
        match self {
            Family::Inet => AddressFamily::INET,
            Family::Inet6 => AddressFamily::INET6,
            Family::Local => AddressFamily::UNIX,
        }
    }
}

impl<'a> Decoder<'a> for Family {
    fn decode(term: Term<'a>) -> NifResult<Family> {
        let name: Atom = term.decode()?;
        let families =
            [(atoms::inet(), Family::Inet), (atoms::inet6(), Family::Inet6), (atoms::local(), Family::Local)];
        families.iter().find(|(atom, _)| *atom == name).map(|&(_, family)| family).ok_or(Error::BadArg)
    }
}

/// Opens a non-blocking stream socket; see socket(2).
pub fn new(family: Family) -> Result<OwnedFd> {
    let protocol = match family {
        Family::Inet | Family::Inet6 => Some(ipproto::TCP),
        Family::Local => None,
    };
    socket_with(family.domain(), SocketType::STREAM, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC, protocol)
}

/// Opens a socket in the network namespace at `path`. A short-lived thread enters the namespace,
/// so that no thread of the VM can stay in it.
pub fn in_namespace(family: Family, path: &[u8]) -> Result<OwnedFd> {
    let path = OsStr::from_bytes(path).to_owned();
    let visit = move || {
        let namespace = File::open(path).map_err(errno)?;
        // SAFETY: the descriptor is open; the call changes nothing but this thread's namespace.
        if unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) } != 0 {
            return Err(errno(std::io::Error::last_os_error()));
        }
        new(family)
    };
    let visitor = std::thread::Builder::new().name("weir_netns".into()).spawn(visit).map_err(errno)?;
    visitor.join().unwrap_or(Err(Errno::IO))
}

fn errno(error: std::io::Error) -> Errno {
    Errno::from_raw_os_error(error.raw_os_error().unwrap_or(libc::EINVAL))
}

/// Adopts a descriptor that was opened elsewhere, and makes it non-blocking. Returns it with its
/// state, connected or open. EINVAL if it is not a stream of this family. The caller guarantees
/// that it stays open and that nothing else reads it.
pub fn existing(family: Family, number: RawFd) -> Result<(OwnedFd, State)> {
    if number < 0 {
        return Err(Errno::BADF);
    }
    {
        // SAFETY: not -1; the first call finds out whether it is open.
        let fd = unsafe { BorrowedFd::borrow_raw(number) };
        let domain = c_int::from(family.domain().as_raw());
        if sockopt::get::<c_int>(fd, libc::SOL_SOCKET, libc::SO_TYPE)? != libc::SOCK_STREAM
            || sockopt::get::<c_int>(fd, libc::SOL_SOCKET, libc::SO_DOMAIN)? != domain
        {
            return Err(Errno::INVAL);
        }
        rustix::io::ioctl_fionbio(fd, true)?;
    }
    // SAFETY: an open socket, as checked above, which the caller gives away.
    let fd = unsafe { OwnedFd::from_raw_fd(number) };
    let connected = rustix::net::getpeername(fd.as_fd()).is_ok_and(|peer| peer.is_some());
    Ok((fd, if connected { State::Connected } else { State::Open }))
}
