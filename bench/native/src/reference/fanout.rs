//! Broadcasts messages to all connections.

use std::os::fd::OwnedFd;

use rustix::io::Result;
use serde_json::json;

use super::server::{Next, Service};
use crate::clock::{self, SECOND};
use crate::connections::Connections;
use crate::poller::{Event, Interest, Poller, Token};
use crate::socket::{Drained, drain, scratch, send};

/// Bytes at the front of a message that hold the time of its broadcast: [`clock::now`], big-endian.
pub const TIMESTAMP_BYTES: usize = 8;

/// The fan-out service.
#[derive(Debug)]
pub struct Fanout {
    scratch: Box<[u8]>,
    message: Vec<u8>,
    /// Nanoseconds between two broadcasts; 0: as fast as the listeners read.
    period: u64,
    /// `None` while no listener has room.
    next_at: Option<u64>,
    started_at: Option<u64>,
    broadcasts: u64,
    deliveries: u64,
    dropped: u64,
}

/// A connection that receives broadcasts.
#[derive(Debug)]
pub struct Subscriber {
    socket: OwnedFd,
    /// The kernel has no room: messages are dropped until it reports some.
    is_blocked: bool,
    /// The unsent rest of a message.
    rest: Vec<u8>,
}

impl Fanout {
    /// Broadcasts messages of `size` bytes, `per_second` times a second (0: as fast as the
    /// listeners read).
    pub fn new(size: usize, per_second: u64) -> Self {
        Self {
            scratch: scratch(),
            message: vec![b'.'; size.max(TIMESTAMP_BYTES)],
            period: SECOND.checked_div(per_second).unwrap_or(0),
            next_at: None,
            started_at: None,
            broadcasts: 0,
            deliveries: 0,
            dropped: 0,
        }
    }

    /// Deliveries since the first connection, as a JSON object.
    pub fn summary(&self) -> String {
        let since = self.started_at.map_or(0, |at| clock::now() - at);
        let seconds = since as f64 / SECOND as f64;
        let rate = if since > 0 {
            self.deliveries as f64 / seconds
        } else {
            0.0
        };
        json!({
            "command": "fanout",
            "size": self.message.len(),
            "duration_s": (seconds * 1e3).round() / 1e3,
            "broadcasts": self.broadcasts,
            "deliveries": self.deliveries,
            "deliveries_per_s": rate.round(),
            "dropped": self.dropped,
        })
        .to_string()
    }

    fn resume(&mut self) {
        if self.next_at.is_none() {
            let now = clock::now();
            self.next_at = Some(now);
            self.started_at.get_or_insert(now);
        }
    }
}

/// The outcome of a message for one subscriber.
enum Delivery {
    Done,
    Begun,
    Dropped,
}

impl Subscriber {
    #[inline]
    fn deliver(&mut self, message: &[u8]) -> Result<Delivery> {
        if self.is_blocked {
            return Ok(Delivery::Dropped);
        }
        let sent = send(&self.socket, message)?;
        if sent == message.len() {
            return Ok(Delivery::Done);
        }
        self.is_blocked = true;
        if sent == 0 {
            return Ok(Delivery::Dropped);
        }
        self.rest.extend_from_slice(&message[sent..]);
        Ok(Delivery::Begun)
    }

    /// Sends the rest of a message, and returns whether that completed it.
    fn complete(&mut self) -> Result<bool> {
        let has_rest = !self.rest.is_empty();
        let sent = send(&self.socket, &self.rest)?;
        self.rest.drain(..sent);
        self.is_blocked = !self.rest.is_empty();
        Ok(has_rest && !self.is_blocked)
    }
}

impl Service for Fanout {
    type Connection = Subscriber;

    fn accepted(
        &mut self,
        socket: OwnedFd,
        token: Token,
        poller: &Poller,
    ) -> Result<Option<Subscriber>> {
        poller.add(&socket, token, Interest::ReadWrite)?;
        self.resume();
        Ok(Some(Subscriber {
            socket,
            is_blocked: false,
            rest: Vec::new(),
        }))
    }

    fn ready(&mut self, subscriber: &mut Subscriber, event: Event, _: &Poller) -> Result<Next> {
        if event.readiness.readable()
            && drain(&subscriber.socket, &mut self.scratch) == Drained::Closed
        {
            return Ok(Next::Close);
        }
        if event.readiness.writable() && subscriber.is_blocked {
            self.deliveries += u64::from(subscriber.complete()?);
            if !subscriber.is_blocked {
                self.resume();
            }
        }
        Ok(Next::Keep)
    }

    fn deadline(&self) -> Option<u64> {
        self.next_at
    }

    fn tick(&mut self, subscribers: &mut Connections<Subscriber>, now: u64) {
        self.message[..TIMESTAMP_BYTES].copy_from_slice(&now.to_be_bytes());
        let mut can_go_on = false;
        for (_, subscriber) in subscribers.iter_mut() {
            match subscriber.deliver(&self.message) {
                Ok(Delivery::Done) => {
                    self.deliveries += 1;
                    can_go_on = true;
                }
                Ok(Delivery::Begun) => {}
                // A failed connection gets its own event, which closes it.
                Ok(Delivery::Dropped) | Err(_) => self.dropped += 1,
            }
        }
        self.broadcasts += 1;
        // At a given rate, broadcasts go on even if all are blocked; at full speed, only if a
        // socket had room.
        self.next_at = if self.period > 0 && !subscribers.is_empty() {
            Some((self.next_at.unwrap_or(now) + self.period).max(now))
        } else if can_go_on {
            Some(now)
        } else {
            None
        };
    }
}
