//! Connecting sockets.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::SocketAddrAny;
use rustler::Env;

use crate::kernel::sockopt;
use crate::socket::{Socket, State, Waiter};
use crate::term::atoms;
use crate::term::errno;
use crate::verb::open;
use crate::verb::open::Family;

/// Opens a descriptor for a connection to an address, without Nagle's algorithm.
pub fn open(address: &SocketAddrAny) -> rustix::io::Result<OwnedFd> {
    let family = Family::of(address)?;
    let fd = open::new(family)?;
    if family != Family::Local {
        sockopt::set_int(fd.as_fd(), libc::IPPROTO_TCP, libc::TCP_NODELAY, 1)?;
    }
    Ok(fd)
}

/// Starts to connect. Returns true if it is connected already, as on loopback.
pub fn attempt(fd: BorrowedFd, address: &SocketAddrAny) -> rustix::io::Result<bool> {
    match rustix::net::connect(fd, address) {
        Ok(()) => Ok(true),
        // Checking now saves a registration and a message.
        Err(Errno::INPROGRESS) => Ok(stands(fd)),
        // An interrupted connect continues in the kernel; see connect(2).
        Err(Errno::INTR) => Ok(false),
        Err(errno) => Err(errno),
    }
}

/// Starts to connect. Returns true if it is connected already, false if the pollset will report
/// the result.
pub fn begin(socket: &mut Socket, address: &SocketAddrAny) -> rustix::io::Result<bool> {
    let Some(fd) = &socket.fd else {
        return Err(Errno::BADF);
    };
    let stands = attempt(fd.as_fd(), address)?;
    match stands {
        true => socket.state = State::Connected,
        false => expect(socket)?,
    }
    Ok(stands)
}

/// Registers a connection attempt, so that the pollset reports its result.
pub fn expect(socket: &mut Socket) -> rustix::io::Result<()> {
    socket.state = State::Connecting;
    socket.readable.end();
    socket.writable = false;
    socket.register()
}

/// Whether a connection attempt has succeeded. A failure is reported later, by an event.
fn stands(fd: BorrowedFd) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::OUT)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut fds, Some(&now)).is_ok() && fds[0].revents() == PollFlags::OUT
}

/// Makes the calling process wait for the connection. Returns its operation.
pub fn await_connection(env: Env, socket: &mut Socket) -> u32 {
    let operation = socket.next_operation();
    socket.connector = Some(Box::new(Waiter { pid: env.pid(), operation }));
    operation
}

/// The result of a connection attempt; `None` while it is in progress.
pub fn outcome(socket: &mut Socket) -> Option<rustix::io::Result<()>> {
    let fd = socket.fd.as_ref()?;
    if !socket.writable && !socket.hung_up {
        return None;
    }
    // A failed attempt is reported as a hang-up; a connected socket only as writable.
    let outcome = match socket.hung_up {
        true => rustix::net::sockopt::socket_error(fd.as_fd()).and_then(|outcome| outcome),
        false => Ok(()),
    };
    socket.state = if outcome.is_ok() { State::Connected } else { State::Open };
    Some(outcome)
}

/// Handles an event of a connecting socket.
pub fn serve(env: Env, socket: &mut Socket) {
    let Some(outcome) = outcome(socket) else { return };
    let connector = socket.connector.take();
    match outcome {
        Ok(()) => {
            if let Some(waiter) = connector {
                socket.answer(env, *waiter, atoms::ok());
            }
        }
        Err(errno) => {
            if let Some(waiter) = connector {
                socket.answer(env, *waiter, (atoms::error(), errno::atom(env, errno)));
            }
        }
    }
}
