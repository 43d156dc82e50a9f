//! A thin, safe layer over epoll: tokens, interests and readiness.

use std::fmt;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::io::{Errno, Result};

/// Most events of one wait. Large enough to share a wait among hundreds of requests, small enough
/// for the events (12 KiB) to stay in the first-level cache.
const EVENTS_PER_WAIT: usize = 1024;

/// Identifies one of the users of a shared poller.
pub type Lane = u8;

/// Identifies the source of an event: an index into a table, a generation that distinguishes the
/// present entry from earlier ones, and the lane, which distinguishes tables.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Token(u64);

impl Token {
    const GENERATION_BITS: u32 = 24;

    /// A token; generations wrap at 24 bits.
    pub const fn new(lane: Lane, index: u32, generation: u32) -> Self {
        let generation = generation & ((1 << Self::GENERATION_BITS) - 1);
        Self((lane as u64) << 56 | (generation as u64) << 32 | index as u64)
    }

    /// The lane the event belongs to.
    #[inline]
    pub const fn lane(self) -> Lane {
        (self.0 >> 56) as Lane
    }

    /// The index into the lane's table.
    #[inline]
    pub const fn index(self) -> u32 {
        self.0 as u32
    }

    /// The same index and generation in another lane: the second descriptor of one table entry.
    #[inline]
    pub const fn in_lane(self, lane: Lane) -> Self {
        Self(self.0 & !(0xff << 56) | (lane as u64) << 56)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Token(lane {}, index {}, generation {})",
            self.lane(),
            self.index(),
            (self.0 >> 32) & 0xff_ffff
        )
    }
}

/// The events that a descriptor is watched for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    /// Level-triggered readability, for listeners and signals: work may be left for the next wait.
    Level,
    /// Edge-triggered readability, including the peer's close.
    Read,
    /// The same, and edge-triggered writability after a short write.
    ReadWrite,
}

impl Interest {
    const fn flags(self) -> epoll::EventFlags {
        use epoll::EventFlags as F;
        match self {
            Self::Level => F::IN,
            Self::Read => F::IN.union(F::RDHUP).union(F::ET),
            Self::ReadWrite => F::IN.union(F::OUT).union(F::RDHUP).union(F::ET),
        }
    }
}

/// The state of a descriptor when its event was taken from the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Readiness(epoll::EventFlags);

impl Readiness {
    /// A receive would not block: data, the end of the stream or an error.
    #[inline]
    pub fn readable(self) -> bool {
        use epoll::EventFlags as F;
        self.0.intersects(F::IN | F::RDHUP | F::HUP | F::ERR)
    }

    /// A send would not block: room or an error.
    #[inline]
    pub fn writable(self) -> bool {
        use epoll::EventFlags as F;
        self.0.intersects(F::OUT | F::HUP | F::ERR)
    }

    /// The peer has closed its side, or the connection failed. If this is false, a receive that
    /// returned less than its buffer has drained the socket: a later close makes its own edge.
    #[inline]
    pub fn closing(self) -> bool {
        use epoll::EventFlags as F;
        self.0.intersects(F::RDHUP | F::HUP | F::ERR)
    }

    /// The connection is closed in both directions or failed.
    #[inline]
    pub fn failed(self) -> bool {
        use epoll::EventFlags as F;
        self.0.intersects(F::HUP | F::ERR)
    }
}

/// One event.
#[derive(Clone, Copy, Debug)]
pub struct Event {
    /// The token that the descriptor was added with.
    pub token: Token,
    /// The state of the descriptor.
    pub readiness: Readiness,
}

/// The events of one wait, in reused memory.
pub struct Events(Vec<epoll::Event>);

impl Events {
    /// Memory for one wait.
    pub fn new() -> Self {
        Self(Vec::with_capacity(EVENTS_PER_WAIT))
    }

    /// The events of the last wait.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = Event> + '_ {
        self.0.iter().map(|event| Event {
            token: Token(event.data.u64()),
            readiness: Readiness(event.flags),
        })
    }
}

impl Default for Events {
    fn default() -> Self {
        Self::new()
    }
}

/// An epoll instance.
#[derive(Debug)]
pub struct Poller {
    epoll: OwnedFd,
}

impl Poller {
    /// A poller without descriptors.
    pub fn new() -> Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        Ok(Self { epoll })
    }

    /// Watches a descriptor. With edge triggering, readiness that exists already is reported at
    /// once. Closing the descriptor ends the watch.
    #[inline]
    pub fn add(&self, source: impl AsFd, token: Token, interest: Interest) -> Result<()> {
        epoll::add(&self.epoll, source, data(token), interest.flags())
    }

    /// Makes an edge-triggered descriptor report its readiness again, for callers that stop
    /// reading early to be fair to others.
    pub fn rearm(&self, source: impl AsFd, token: Token, interest: Interest) -> Result<()> {
        epoll::modify(&self.epoll, source, data(token), interest.flags())
    }

    /// Stops watching a descriptor that stays open.
    pub fn remove(&self, source: impl AsFd) -> Result<()> {
        epoll::delete(&self.epoll, source)
    }

    /// Waits until a descriptor is ready or the timeout expires (`None`: no timeout), and stores
    /// the events in `events`. Interruption by a signal returns no events.
    #[inline]
    pub fn wait(&self, events: &mut Events, timeout: Option<Duration>) -> Result<()> {
        events.0.clear();
        let timeout = timeout.map(|time| Timespec {
            tv_sec: time.as_secs() as i64,
            tv_nsec: i64::from(time.subsec_nanos()),
        });
        match epoll::wait(&self.epoll, spare_capacity(&mut events.0), timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(errno),
        }
    }
}

fn data(token: Token) -> epoll::EventData {
    epoll::EventData::new_u64(token.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_token_keeps_its_parts() {
        let token = Token::new(7, u32::MAX - 1, 0x12_3456);
        assert_eq!(token.lane(), 7);
        assert_eq!(token.index(), u32::MAX - 1);
        assert_eq!(token.in_lane(255).in_lane(7), token);
        assert_ne!(token, Token::new(7, u32::MAX - 1, 0x12_3457));
    }

    #[test]
    fn generations_wrap_without_touching_the_lane() {
        let token = Token::new(1, 0, u32::MAX);
        assert_eq!(token.lane(), 1);
        assert_eq!(token, Token::new(1, 0, 0xff_ffff));
    }

    #[test]
    fn an_edge_is_reported_once_and_again_after_rearm() {
        let (here, mut there) = UnixStream::pair().unwrap();
        let poller = Poller::new().unwrap();
        let token = Token::new(1, 2, 3);
        poller.add(&here, token, Interest::Read).unwrap();
        there.write_all(b"x").unwrap();
        let mut events = Events::new();
        let brief = Some(Duration::from_millis(1));
        for expected in [1, 0] {
            poller.wait(&mut events, brief).unwrap();
            assert_eq!(events.iter().count(), expected);
        }
        poller.rearm(&here, token, Interest::Read).unwrap();
        poller.wait(&mut events, brief).unwrap();
        let event = events.iter().next().unwrap();
        assert_eq!(event.token, token);
        assert!(event.readiness.readable() && !event.readiness.closing());
    }
}
