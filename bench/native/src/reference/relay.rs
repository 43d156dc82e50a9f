//! Opens one backend connection for each client and copies bytes in both directions.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::io::{Errno, Result};
use rustix::net::{Shutdown, shutdown, sockopt};

use super::server::{BACKENDS, Next, Service};
use crate::poller::{Event, Interest, Poller, Readiness, Token};
use crate::socket::{self, READS_PER_EVENT, Received, receive, scratch, send};

/// The relay service.
#[derive(Debug)]
pub struct Relay {
    to: SocketAddr,
    scratch: Box<[u8]>,
}

/// A client and its backend connection.
#[derive(Debug)]
pub struct Link {
    client: OwnedFd,
    backend: OwnedFd,
    to_backend: Flow,
    to_client: Flow,
}

/// The state of one direction.
#[derive(Debug, Default)]
struct Flow {
    /// Bytes that the receiver has not taken yet. The sender is not read until they are sent, so
    /// this is at most one scratch buffer, and TCP flow control slows the sender down.
    pending: Vec<u8>,
    /// The sender has closed its side, and the receiver's write side is shut down.
    is_finished: bool,
}

impl Relay {
    /// A relay to the backend at `to`.
    pub fn new(to: SocketAddr) -> Self {
        let scratch = scratch();
        Self { to, scratch }
    }
}

impl Service for Relay {
    type Connection = Link;

    fn accepted(&mut self, client: OwnedFd, token: Token, poller: &Poller) -> Result<Option<Link>> {
        let backend = socket::stream(&self.to)?;
        sockopt::set_tcp_nodelay(&backend, true)?;
        socket::connect(&backend, &self.to)?;
        poller.add(&backend, token.in_lane(BACKENDS), Interest::ReadWrite)?;
        poller.add(&client, token, Interest::ReadWrite)?;
        Ok(Some(Link {
            client,
            backend,
            to_backend: Flow::default(),
            to_client: Flow::default(),
        }))
    }

    #[inline]
    fn ready(&mut self, link: &mut Link, event: Event, poller: &Poller) -> Result<Next> {
        let served = link.serve(event, &mut self.scratch, poller);
        if served.is_err() {
            // A failure of one side is passed on as a reset, not as an orderly close.
            for side in [&link.client, &link.backend] {
                let _ = sockopt::set_socket_linger(side, Some(Duration::ZERO));
            }
        }
        served
    }
}

impl Link {
    fn serve(&mut self, event: Event, scratch: &mut [u8], poller: &Poller) -> Result<Next> {
        let backend_token = event.token.in_lane(BACKENDS);
        let client_token = event.token.in_lane(super::server::CLIENTS);
        let (this, this_token, outward, other, other_token, inward) =
            if event.token.lane() == BACKENDS {
                (
                    &self.backend,
                    backend_token,
                    &mut self.to_client,
                    &self.client,
                    client_token,
                    &mut self.to_backend,
                )
            } else {
                (
                    &self.client,
                    client_token,
                    &mut self.to_backend,
                    &self.backend,
                    backend_token,
                    &mut self.to_client,
                )
            };
        if event.readiness.readable() {
            let known = Some(event.readiness);
            if outward.carry(this, other, known, scratch)? == Carried::More {
                poller.rearm(this, this_token, Interest::ReadWrite)?;
            }
        }
        if event.readiness.writable()
            && !inward.pending.is_empty()
            // Edges of the sender may have been missed while it was not read: its readiness is
            // unknown.
            && inward.carry(other, this, None, scratch)? == Carried::More
        {
            poller.rearm(other, other_token, Interest::ReadWrite)?;
        }
        Ok(
            if self.to_backend.is_finished && self.to_client.is_finished {
                Next::Close
            } else {
                Next::Keep
            },
        )
    }
}

/// Whether the sender was read until it was empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Carried {
    /// Nothing is left, or the receiver has no room: an edge will follow.
    All,
    /// Data may be left; the turn is over.
    More,
}

impl Flow {
    /// Copies bytes from one socket to the other. `known` is the sender's readiness if the event
    /// is the sender's.
    fn carry(
        &mut self,
        from: &OwnedFd,
        to: &OwnedFd,
        known: Option<Readiness>,
        scratch: &mut [u8],
    ) -> Result<Carried> {
        if !self.pending.is_empty() {
            // If the sender has failed, unsent bytes are dropped: a reset means that data may be
            // lost.
            if known.is_some_and(Readiness::failed) {
                sockopt::socket_error(from)??;
            }
            let sent = send(to, &self.pending)?;
            if sent < self.pending.len() {
                self.pending.drain(..sent);
                return Ok(Carried::All);
            }
            self.pending = Vec::new();
        }
        if self.is_finished {
            return Ok(Carried::All);
        }
        let short_is_all = known.is_some_and(|readiness| !readiness.closing());
        for _ in 0..READS_PER_EVENT {
            let length = match receive(from, scratch)? {
                Received::Bytes(length) => length,
                Received::Nothing => return Ok(Carried::All),
                Received::End => {
                    self.is_finished = true;
                    return match shutdown(to, Shutdown::Write) {
                        // The receiver is closed; its own event follows.
                        Ok(()) | Err(Errno::NOTCONN) => Ok(Carried::All),
                        Err(errno) => Err(errno),
                    };
                }
            };
            let sent = send(to, &scratch[..length])?;
            if sent < length {
                self.pending.extend_from_slice(&scratch[sent..length]);
                return Ok(Carried::All);
            }
            if length < scratch.len() && short_is_all {
                return Ok(Carried::All);
            }
        }
        Ok(Carried::More)
    }
}
