//! Connect, receive and send on non-blocking stream sockets, with "would block" separate from
//! failure.

use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};

use rustix::io::{Errno, Result};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, socket_with};

/// Bytes of the receive buffer of an event loop. A receive that fills less has drained the socket.
pub const SCRATCH_BYTES: usize = 64 * 1024;

/// How many full scratch buffers are read for one event before other connections are served.
pub const READS_PER_EVENT: usize = 16;

/// A scratch buffer, zeroed.
pub fn scratch() -> Box<[u8]> {
    vec![0; SCRATCH_BYTES].into_boxed_slice()
}

/// The result of a receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// This many bytes, at least one.
    Bytes(usize),
    /// No data now.
    Nothing,
    /// The peer has closed its side.
    End,
}

/// Receives as much as fits into the buffer.
#[inline]
pub fn receive(socket: impl AsFd, buffer: &mut [u8]) -> Result<Received> {
    match rustix::net::recv(socket, buffer, RecvFlags::empty()) {
        Ok((0, _)) => Ok(Received::End),
        Ok((length, _)) => Ok(Received::Bytes(length)),
        Err(Errno::AGAIN) => Ok(Received::Nothing),
        Err(errno) => Err(errno),
    }
}

/// Sends as much as the kernel takes and returns the number of bytes; 0 if there is no room. If
/// that is less than `bytes.len()`, writability is reported as a new edge.
#[inline]
pub fn send(socket: impl AsFd, bytes: &[u8]) -> Result<usize> {
    match rustix::net::send(socket, bytes, SendFlags::NOSIGNAL) {
        Err(Errno::AGAIN) => Ok(0),
        sent => sent,
    }
}

/// Whether a connection is still open after its input was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drained {
    /// No data is left.
    Open,
    /// The peer has closed or reset.
    Closed,
}

/// Reads and drops all data.
pub fn drain(socket: impl AsFd, scratch: &mut [u8]) -> Drained {
    loop {
        match receive(&socket, scratch) {
            Ok(Received::Bytes(length)) if length < scratch.len() => return Drained::Open,
            Ok(Received::Bytes(_)) => {}
            Ok(Received::Nothing) => return Drained::Open,
            Ok(Received::End) | Err(_) => return Drained::Closed,
        }
    }
}

/// A non-blocking TCP socket of the family of `address`.
pub fn stream(address: &SocketAddr) -> Result<OwnedFd> {
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    socket_with(family, SocketType::STREAM, flags, None)
}

/// Starts to connect. The outcome is an event: writable, or failed with the socket's error.
pub fn connect(socket: impl AsFd, address: &SocketAddr) -> Result<()> {
    match rustix::net::connect(socket, address) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(()),
        Err(errno) => Err(errno),
    }
}
