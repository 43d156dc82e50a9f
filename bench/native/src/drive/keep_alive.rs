//! HTTP connections that are kept open after one request.

use std::os::fd::OwnedFd;

use super::measurement::Fault;
use super::response::{Progress, ResponseReader};
use super::target::Target;
use super::transport::{Transport, Turn, read};
use crate::poller::Readiness;
use crate::socket::send;

/// One request on each connection.
#[derive(Debug)]
pub struct KeepAlive {
    request: Vec<u8>,
}

/// A connection: the unsent part of the request, and the response.
#[derive(Debug)]
pub struct Channel {
    unsent: Vec<u8>,
    reader: ResponseReader,
    is_answered: bool,
}

impl KeepAlive {
    /// Requests to a server at `target` for `path`.
    pub fn new(target: &Target, path: &str) -> Self {
        Self {
            request: format!("GET {path} HTTP/1.1\r\nHost: {target}\r\n\r\n").into_bytes(),
        }
    }
}

impl Transport for KeepAlive {
    type Channel = Channel;

    fn open(&self) -> Channel {
        Channel {
            unsent: self.request.clone(),
            reader: ResponseReader::default(),
            is_answered: false,
        }
    }

    fn greet(
        &self,
        channel: &mut Channel,
        socket: &OwnedFd,
        readiness: Readiness,
        scratch: &mut [u8],
    ) -> Result<bool, Fault> {
        self.flush(channel, socket)?;
        if readiness.readable() {
            read(socket, readiness, scratch, |bytes| {
                match channel.reader.read(bytes)? {
                    Progress::Complete {
                        status: 200..300,
                        rest: 0,
                    } => channel.is_answered = true,
                    Progress::Complete { rest: 0, .. } => return Err(Fault::Status),
                    Progress::Complete { .. } => return Err(Fault::BadResponse),
                    Progress::Incomplete => {}
                }
                Ok(())
            })?;
        }
        Ok(channel.is_answered)
    }

    fn send(&self, _: &mut Channel, socket: &OwnedFd, bytes: &[u8]) -> Result<usize, Fault> {
        Ok(send(socket, bytes)?)
    }

    fn flush(&self, channel: &mut Channel, socket: &OwnedFd) -> Result<(), Fault> {
        if !channel.unsent.is_empty() {
            let sent = send(socket, &channel.unsent)?;
            channel.unsent.drain(..sent);
        }
        Ok(())
    }

    fn read(
        &self,
        _: &mut Channel,
        socket: &OwnedFd,
        readiness: Readiness,
        scratch: &mut [u8],
        take: impl FnMut(&[u8]) -> Result<(), Fault>,
    ) -> Result<Turn, Fault> {
        read(socket, readiness, scratch, take)
    }
}
