//! One connection of a relay, and a visit to it.

use std::os::fd::OwnedFd;

use rustix::io::{Errno, Result};

use super::statistics::Statistics;
use crate::kernel::clock::Nanos;
use crate::value::counters::Tally;
use crate::value::handle::Side;
use crate::value::latency::Times;
use crate::value::readable::Readable;
use crate::value::work::Work;

/// One connection of a relay, and what the kernel has said of it. Edge-triggered: it says so once.
pub struct Connection {
    pub fd: OwnedFd,
    pub readable: Readable,
    pub writable: bool,
    /// The kernel does not say when there is more to read.
    pub muted: bool,
    /// It was reset, or has failed in another way.
    pub failed: bool,
}

impl Connection {
    /// One whose input is in this state. That it takes output is tried.
    pub fn new(fd: OwnedFd, readable: Readable) -> Connection {
        Connection { fd, readable, writable: true, muted: false, failed: false }
    }

    /// Notes that it has failed.
    pub fn fail(&mut self, errno: Errno) -> Errno {
        self.failed = true;
        errno
    }
}

/// What a visit may spend and where it counts.
pub struct Visit<'a> {
    pub work: &'a mut Work,
    pub tally: &'a mut Tally,
    pub statistics: &'a mut Statistics,
    /// Where times of replies go as well: to a listener of the connections, and to what the relay was started with.
    pub times: [Option<&'a Times>; 2],
}

impl Visit<'_> {
    /// Counts a read of `n` bytes from a side.
    #[inline]
    pub fn has_read(&mut self, side: Side, n: usize) {
        self.work.moved(n);
        let reply = self.statistics.read(side, n, Nanos::now());
        if let Some(reply) = reply {
            self.times.into_iter().flatten().for_each(|times| times.count(reply));
        }
        self.tally.reads += 1;
        self.tally.read_bytes += n as u64;
    }
}

/// How far a visit came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// As far as the kernel allows: an event follows.
    Done,
    /// There is more to do than a visit may.
    Over,
}

/// What the result of a write says about the next one: a short one means that the kernel is full, and an edge follows
/// when it is not.
#[inline]
pub fn written(to: &mut Connection, sent: Result<usize>, wanted: usize, visit: &mut Visit) -> Result<usize> {
    let n = match sent {
        Ok(n) => n,
        Err(Errno::AGAIN) => 0,
        Err(errno) => return Err(to.fail(errno)),
    };
    visit.tally.writes += 1;
    visit.tally.written_bytes += n as u64;
    if n < wanted {
        visit.tally.short_writes += 1;
        to.writable = false;
    }
    Ok(n)
}
