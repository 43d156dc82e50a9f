//! Carries the bytes of a connection: plain or encrypted.

use std::os::fd::OwnedFd;

use super::measurement::Fault;
use crate::poller::Readiness;
use crate::socket::{READS_PER_EVENT, Received, receive, send};

/// A way to carry bytes over a socket.
pub trait Transport {
    /// The transport's state of a connection.
    type Channel;

    /// The channel of a new connection.
    fn open(&self) -> Self::Channel;

    /// Continues the handshake as far as possible. Returns whether it is complete.
    fn greet(
        &self,
        channel: &mut Self::Channel,
        socket: &OwnedFd,
        readiness: Readiness,
        scratch: &mut [u8],
    ) -> Result<bool, Fault>;

    /// Accepts as many bytes as there is room for, and returns their number. If that is less than
    /// `bytes.len()`, or if bytes are kept for [`flush`](Self::flush), writability is reported as
    /// a new edge.
    fn send(
        &self,
        channel: &mut Self::Channel,
        socket: &OwnedFd,
        bytes: &[u8],
    ) -> Result<usize, Fault>;

    /// Sends bytes that were accepted before and did not fit.
    fn flush(&self, channel: &mut Self::Channel, socket: &OwnedFd) -> Result<(), Fault>;

    /// Receives data and calls `take` with each piece.
    fn read(
        &self,
        channel: &mut Self::Channel,
        socket: &OwnedFd,
        readiness: Readiness,
        scratch: &mut [u8],
        take: impl FnMut(&[u8]) -> Result<(), Fault>,
    ) -> Result<Turn, Fault>;
}

/// Whether a connection was read until it was empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Nothing is left to read.
    Done,
    /// Data may be left; other connections get their turn first.
    More,
}

/// Receives data and calls `take` with each piece.
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

/// Plain TCP.
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
