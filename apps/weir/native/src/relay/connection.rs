//! A connection of a relay, and the context of a visit.

use std::os::fd::OwnedFd;

use rustix::io::{Errno, Result};

use super::statistics::Statistics;
use crate::kernel::clock::Nanos;
use crate::value::counters::Tally;
use crate::value::handle::Side;
use crate::value::latency::Times;
use crate::value::readable::Readable;
use crate::value::work::Work;

/// A connection of a relay, and its readiness. It is edge-triggered: each change is reported once.
pub struct Connection {
    pub fd: OwnedFd,
    pub readable: Readable,
    pub writable: bool,
    /// Events of input are turned off.
    pub muted: bool,
    /// It was reset, or has failed otherwise.
    pub failed: bool,
}

impl Connection {
    /// A connection whose input is in this state. Output is assumed to be possible.
    pub fn new(fd: OwnedFd, readable: Readable) -> Connection {
        Connection { fd, readable, writable: true, muted: false, failed: false }
    }

    /// Marks the connection as failed, and returns the error.
    pub fn fail(&mut self, errno: Errno) -> Errno {
        self.failed = true;
        errno
    }
}

/// Budget and counters of a visit.
pub struct Visit<'a> {
    pub work: &'a mut Work,
    pub tally: &'a mut Tally,
    pub statistics: &'a mut Statistics,
    /// Where reply times are also counted: by a listener of the connections, and by the `latency`
    /// that the relay was started with.
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

/// Result of a visit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// The kernel allows no more; an event follows.
    Done,
    /// The budget is used up, and there is more to do.
    Over,
}

/// Handles the result of a write. After a short one the kernel's buffer is full, and an edge
/// reports when it is not.
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
