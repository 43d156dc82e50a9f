//! A running relay: its connections and the bytes in between.

use std::os::fd::{AsFd, IntoRawFd};
use std::time::Duration;

use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use rustix::net::{SocketAddrAny, sockopt};
use rustler::{Env, LocalPid, Term};

use super::Options;
use super::connection::{Connection, Turn, Visit};
use super::flow::Flow;
use super::statistics::Statistics;
use crate::kernel::clock::Nanos;
use crate::kernel::epoll;
use crate::listener::permit::Permit;
use crate::pollset;
use crate::socket::Reason;
use crate::socket::owner::DeathWatch;
use crate::term::held::Held;
use crate::term::resource::ResourceArc;
use crate::value::counters::Tally;
use crate::value::handle::{Handle, Side, Target};
use crate::value::latency;
use crate::value::work::Work;

/// A timer per relay would outlive it, by up to its timeout. So only timeouts due within this time
/// have a timer; the others are checked twice in that time.
const SOON: Duration = Duration::from_secs(10);

/// A running relay. It is stored in its slot, because every pointer is a cache miss with a
/// thousand relays. The order of fields puts those that a visit uses in as few cache lines as
/// possible.
#[repr(C)]
pub struct Live {
    pub left: Connection,
    pub right: Connection,
    pub to_right: Flow<Held>,
    pub to_left: Flow<Held>,
    pub pollset: u16,
    /// It is on its pollset's ready list.
    pub queued: bool,
    pub statistics: Statistics,
    pub options: Options,
    pub owner: LocalPid,
    /// Dropping it ends the monitor of the owner.
    pub _watch: Option<ResourceArc<DeathWatch>>,
    /// The side whose direction ended first, and when.
    pub half_closed: Option<(Side, Nanos)>,
    /// A timer will check its timeouts soon.
    pub timed: bool,
    /// Descriptors that were opened elsewhere, and are closed there: left and right.
    pub borrowed: [bool; 2],
    /// Permits of the listeners through which the connections came: left and right.
    pub permits: [Option<Permit>; 2],
    /// Addresses of the peers, if the relay is observed: left and right.
    pub peers: Option<Box<[Option<SocketAddrAny>; 2]>>,
}

/// How a relay ends.
#[derive(Clone, Copy)]
pub enum Ending {
    /// Both directions have ended.
    Complete,
    /// A connection has failed; the other one is reset.
    Failed(Errno),
    /// A process has stopped it, or it ends for this reason. A side that would have got
    /// undelivered bytes is reset, so that it does not take its data for complete.
    Dropped(Option<Reason>),
}

impl Live {
    pub fn is_bulk(&self) -> bool {
        self.to_left.is_spliced() || self.to_right.is_spliced()
    }

    #[inline]
    pub fn ready(
        &mut self,
        handle: Handle,
        (side, flags): (Side, EventFlags),
        work: &mut Work,
        tally: &mut Tally,
    ) -> Result<Turn, Errno> {
        let connection = match side {
            Side::Left => &mut self.left,
            Side::Right => &mut self.right,
        };
        let hung_up = epoll::is_hung_up(flags);
        if hung_up || flags.intersects(EventFlags::IN | EventFlags::PRI) {
            connection.readable.has_come(hung_up, flags.contains(EventFlags::PRI));
        }
        connection.writable |= hung_up || flags.contains(EventFlags::OUT);
        let readable = connection.readable.is_ready();
        if flags.contains(EventFlags::ERR) {
            self.look_for_error(side)?;
        }
        if work.is_over() {
            return Ok(Turn::Over);
        }
        work.visited();
        let (inward, other) = match side {
            Side::Left => (&self.to_left, Side::Right),
            Side::Right => (&self.to_right, Side::Left),
        };
        let inward_waits = inward.is_waiting();
        let outward = if readable { self.carry(handle, side, work, tally)? } else { Turn::Done };
        let inward = if inward_waits { self.carry(handle, other, work, tally)? } else { Turn::Done };
        Ok(if [outward, inward].contains(&Turn::Over) { Turn::Over } else { Turn::Done })
    }

    pub fn go_on(&mut self, handle: Handle, work: &mut Work, tally: &mut Tally) -> Result<Turn, Errno> {
        work.visited();
        let turns = [self.carry(handle, Side::Left, work, tally)?, self.carry(handle, Side::Right, work, tally)?];
        Ok(if turns.contains(&Turn::Over) { Turn::Over } else { Turn::Done })
    }

    /// Forwards bytes from a side.
    #[inline]
    fn carry(&mut self, handle: Handle, side: Side, work: &mut Work, tally: &mut Tally) -> Result<Turn, Errno> {
        let times = match latency::is_wanted() {
            true => [
                self.permits.iter().flatten().find_map(|permit| permit.times(self.pollset)),
                self.options.latency.as_ref().and_then(|latency| latency.times(self.pollset)),
            ],
            false => [None; 2],
        };
        let mut visit = Visit { work, tally, statistics: &mut self.statistics, times };
        let (flow, from, to) = match side {
            Side::Left => (&mut self.to_right, &mut self.left, &mut self.right),
            Side::Right => (&mut self.to_left, &mut self.right, &mut self.left),
        };
        let turn = flow.carry(from, to, &mut visit)?;
        // While the other side takes nothing, each arriving segment would be a useless event.
        let blocked = flow.is_blocked(to);
        if blocked != from.muted {
            from.muted = blocked;
            let (epoll, target) = (pollset::epoll(self.pollset), Target::Relay(handle, side));
            if blocked { epoll.mute(from.fd.as_fd(), target)? } else { epoll.rename(from.fd.as_fd(), target)? }
        }
        if self.half_closed.is_none() && flow.is_finished() {
            self.half_closed = Some((side, Nanos::now()));
        }
        Ok(turn)
    }

    /// Finds the error of a connection that is not read, because the other side takes nothing or
    /// its input has ended.
    fn look_for_error(&mut self, side: Side) -> Result<(), Errno> {
        let (connection, flow) = match side {
            Side::Left => (&mut self.left, &self.to_right),
            Side::Right => (&mut self.right, &self.to_left),
        };
        match flow.is_deaf() {
            true => sockopt::socket_error(&connection.fd)?.map_err(|errno| connection.fail(errno)),
            false => Ok(()),
        }
    }

    /// The failed connection, if there is one.
    pub fn failed(&self) -> Option<Side> {
        match (self.left.failed, self.right.failed) {
            (true, _) => Some(Side::Left),
            (_, true) => Some(Side::Right),
            _ => None,
        }
    }

    /// The statistics so far, and how it has ended, if it has.
    pub fn describe<'a>(&self, env: Env<'a>) -> Term<'a> {
        self.statistics.encode(env, self.failed(), self.half_closed.map(|(side, _)| side))
    }

    /// Returns the minimum time until a timeout, if that is soon enough for a timer.
    pub fn look_soon(&mut self, now: Nanos) -> Option<Duration> {
        let rest = |limit: Duration, since: Nanos| limit.saturating_sub(now.since(since));
        let idle = self.options.idle_timeout.map(|limit| rest(limit, self.statistics.moved()));
        let half_closed = self.half_closed.map_or(now, |(_, since)| since);
        let half = self.options.half_close_timeout.map(|limit| rest(limit, half_closed));
        let soon = idle.into_iter().chain(half).min().filter(|&wait| wait < SOON);
        self.timed = soon.is_some();
        soon
    }

    /// Closes both connections, normally or with a reset. Returns their permits, which the caller
    /// ends.
    pub fn close(self, ending: Ending) -> [Option<Permit>; 2] {
        let lost = |flow: &Flow<Held>| match ending {
            Ending::Complete => false,
            Ending::Failed(_) => true,
            Ending::Dropped(_) => flow.is_waiting(),
        };
        let resets = [lost(&self.to_left), lost(&self.to_right)];
        for ((connection, borrowed), reset) in [self.left, self.right].into_iter().zip(self.borrowed).zip(resets) {
            // A failed connection is closed already.
            if reset && !connection.failed {
                // Fails if the connection is gone.
                let _ = sockopt::set_socket_linger(&connection.fd, Some(Duration::ZERO));
            }
            if borrowed {
                // It stays open, and would stay in the epoll instance.
                let _ = pollset::epoll(self.pollset).delete(connection.fd.as_fd());
                let _ = connection.fd.into_raw_fd();
            }
        }
        self.permits
    }
}
