//! What carries the bytes of a connection: the socket itself, or TLS on it.

use std::os::fd::OwnedFd;

use super::measurement::Fault;
use crate::poller::Readiness;
use crate::socket::{READS_PER_EVENT, Received, receive, send};

/// A way for bytes to go over a socket.
pub trait Transport {
    /// What it keeps for a connection.
    type Channel;

    /// The channel of a new connection.
    fn open(&self) -> Self::Channel;

    /// Agrees with the peer on how to go on, as far as that goes now. Returns whether all is agreed.
    fn greet(
        &self,
        channel: &mut Self::Channel,
        socket: &OwnedFd,
        readiness: Readiness,
        scratch: &mut [u8],
    ) -> Result<bool, Fault>;

    /// Takes as many of the bytes as there is room for and returns how many. A result short of `bytes.len()`, or bytes
    /// kept for [`flush`](Self::flush), make the kernel report writability as a new edge.
    fn send(
        &self,
        channel: &mut Self::Channel,
        socket: &OwnedFd,
        bytes: &[u8],
    ) -> Result<usize, Fault>;

    /// Sends what was taken before and the kernel had no room for.
    fn flush(&self, channel: &mut Self::Channel, socket: &OwnedFd) -> Result<(), Fault>;

    /// Receives what is there and gives it to `take`, piece by piece.
    fn read(
        &self,
        channel: &mut Self::Channel,
        socket: &OwnedFd,
        readiness: Readiness,
        scratch: &mut [u8],
        take: impl FnMut(&[u8]) -> Result<(), Fault>,
    ) -> Result<Turn, Fault>;
}

/// Whether a connection was read to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Nothing is left.
    Done,
    /// The others first.
    More,
}

/// Receives what is there and gives it to `take`, piece by piece.
#[inline]
pub fn read(
    socket: &OwnedFd,
    readiness: Readiness,
    scratch: &mut [u8],
    mut take: impl FnMut(&[u8]) -> Result<(), Fault>,
) -> Result<Turn, Fault> {
    for _ in 0..READS_PER_EVENT {
        match receive(socket, scratch)? {
            Received::Bytes(length) => {
                take(&scratch[..length])?;
                if length < scratch.len() && !readiness.closing() {
                    return Ok(Turn::Done);
                }
            }
            Received::Nothing => return Ok(Turn::Done),
            Received::End => return Err(Fault::Closed),
        }
    }
    Ok(Turn::More)
}

/// The bytes as they are.
#[derive(Clone, Copy, Debug)]
pub struct Plain;

impl Transport for Plain {
    type Channel = ();

    fn open(&self) {}

    fn greet(&self, (): &mut (), _: &OwnedFd, _: Readiness, _: &mut [u8]) -> Result<bool, Fault> {
        Ok(true)
    }

    #[inline]
    fn send(&self, (): &mut (), socket: &OwnedFd, bytes: &[u8]) -> Result<usize, Fault> {
        Ok(send(socket, bytes)?)
    }

    #[inline]
    fn flush(&self, (): &mut (), _: &OwnedFd) -> Result<(), Fault> {
        Ok(())
    }

    #[inline]
    fn read(
        &self,
        (): &mut (),
        socket: &OwnedFd,
        readiness: Readiness,
        scratch: &mut [u8],
        take: impl FnMut(&[u8]) -> Result<(), Fault>,
    ) -> Result<Turn, Fault> {
        read(socket, readiness, scratch, take)
    }
}
