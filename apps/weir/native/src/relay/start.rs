//! Starts relays.

use std::os::fd::{AsFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrAny};
use rustler::{Env, LocalPid};

use super::connection::Connection;
use super::flow::Flow;
use super::live::Live;
use super::statistics::Statistics;
use super::{Options, RELAYS, Relay, millis, peer};
use crate::kernel::clock::Nanos;
use crate::pollset;
use crate::socket::owner::DeathWatch;
use crate::socket::{Reason, Socket};
use crate::term::atoms;
use crate::term::resource::ResourceArc;
use crate::value::counters::Tally;
use crate::value::handle::{Handle, Side, Target};
use crate::value::slots::{Locked, Occupant};
use crate::value::work::Work;
use crate::verb::connect;
use crate::verb::lifecycle::moving::Surrendered;

/// Why no relay was started.
pub enum Refused {
    /// The state of this socket does not allow it.
    Socket(Handle, Reason),
    /// The connection to the server failed.
    Server(Errno),
    Failed(Errno),
}

/// Pollset, owner and options of a new relay. `prefix` is sent to the right side first, as if the
/// peer of the left side had sent it.
pub struct Terms<'a> {
    pub pollset: u16,
    pub owner: LocalPid,
    pub prefix: &'a [u8],
    pub options: Options,
}

/// Joins two sockets of the calling process, and forwards available data. Afterwards both sockets
/// are closed. After an error they are unchanged.
pub fn join(
    env: Env,
    (left, right): (&mut Socket, &mut Socket),
    terms: Terms,
    work: &mut Work,
) -> Result<Handle, Refused> {
    for socket in [&*left, &*right] {
        socket.can_surrender(env).map_err(|reason| Refused::Socket(socket.handle(), reason))?;
    }
    let pollset = terms.pollset;
    let (mut relay, watch) = allocate(env, &terms)?;
    let handle = relay.handle();
    let registered = left.lend(pollset, Target::Relay(handle, Side::Left)).and_then(|()| {
        right.lend(pollset, Target::Relay(handle, Side::Right)).inspect_err(|_| left.take_back(pollset))
    });
    registered.map_err(Refused::Failed)?;
    let (Some(from_left), Some(from_right)) = (left.surrender(env, pollset), right.surrender(env, pollset)) else {
        unreachable!("connected sockets have descriptors");
    };
    relay.begin(env, (from_left, from_right), watch, terms, work);
    Ok(handle)
}

/// Result of [`join_server`].
pub enum Connect {
    Relay(Handle),
    /// The connection is in progress; the left socket is unchanged.
    Wait(OwnedFd),
}

/// Connects to a server, and joins a socket of the calling process with the connection if it is
/// established at once. After an error the socket is unchanged.
pub fn join_server(
    env: Env,
    left: &mut Socket,
    server: &SocketAddrAny,
    terms: Terms,
    work: &mut Work,
) -> Result<Connect, Refused> {
    left.can_surrender(env).map_err(|reason| Refused::Socket(left.handle(), reason))?;
    let right = connect::open(server).map_err(Refused::Server)?;
    if !connect::attempt(right.as_fd(), server).map_err(Refused::Server)? {
        return Ok(Connect::Wait(right));
    }
    let pollset = terms.pollset;
    let (mut relay, watch) = allocate(env, &terms)?;
    let handle = relay.handle();
    let registered = left.lend(pollset, Target::Relay(handle, Side::Left)).and_then(|()| {
        pollset::epoll(pollset)
            .add(right.as_fd(), Target::Relay(handle, Side::Right))
            .inspect_err(|_| left.take_back(pollset))
    });
    registered.map_err(Refused::Failed)?;
    let Some(from_left) = left.surrender(env, pollset) else {
        unreachable!("a connected socket has a descriptor");
    };
    relay.begin(
        env,
        (from_left, Surrendered::new(right, server.address_family() == AddressFamily::UNIX)),
        watch,
        terms,
        work,
    );
    Ok(Connect::Relay(handle))
}

type Vacancy = (Locked<'static, Relay>, Option<ResourceArc<DeathWatch>>);

/// A vacant slot, and the monitor of the owner unless the relay is detached.
fn allocate(env: Env, terms: &Terms) -> Result<Vacancy, Refused> {
    let relay = RELAYS.allocate().ok_or(Refused::Failed(Errno::MFILE))?;
    if terms.options.detached {
        return Ok((relay, None));
    }
    let watch = DeathWatch::of(env, &terms.owner, Target::Relay(relay.handle(), Side::Left));
    if watch.is_none() {
        return Err(Refused::Failed(Errno::SRCH));
    }
    Ok((relay, watch))
}

impl Relay {
    /// Starts with connections that are registered for it, and forwards available data. The slot
    /// is occupied from now on, unless the relay has already ended.
    fn begin(
        &mut self,
        env: Env,
        (from_left, from_right): (Surrendered, Surrendered),
        watch: Option<ResourceArc<DeathWatch>>,
        Terms { pollset, owner, prefix, options }: Terms,
        work: &mut Work,
    ) {
        let handle = self.handle();
        let peers = options.observed.then(|| Box::new([peer(&from_left.fd), peer(&from_right.fd)]));
        let now = Nanos::now();
        let mut statistics = Statistics::new(now);
        let mut read = from_left.input;
        if !prefix.is_empty() {
            read.unread(prefix);
        }
        for (side, n) in [(Side::Left, read.len()), (Side::Right, from_right.input.len())] {
            if n > 0 {
                statistics.read(side, n, now);
            }
        }
        let flow = |source| Flow::new(source, options.buffer, options.splice, options.pipe);
        let (mut to_right, mut to_left) = (flow(Side::Left), flow(Side::Right));
        to_right.begin_with(from_right.queued, read);
        to_left.begin_with(from_left.queued, from_right.input);
        // A client has usually sent something. Registration reports other readiness.
        let mut has_spoken = from_left.readable;
        has_spoken.try_again();
        let live = self.live.insert(Live {
            left: Connection::new(from_left.fd, has_spoken),
            right: Connection::new(from_right.fd, from_right.readable),
            to_right,
            to_left,
            pollset,
            queued: false,
            statistics,
            options,
            owner,
            _watch: watch,
            half_closed: None,
            timed: false,
            borrowed: [from_left.borrowed, from_right.borrowed],
            permits: [from_left.permit, from_right.permit],
            peers,
        });
        if let Some(wait) = live.look_soon(now)
            // If it is not running, it looks at all relays when it starts.
            && let Some(timer) = env.whereis_pid(atoms::weir_relay_timer())
        {
            let _ = env.send(&timer, (atoms::weir_relay(), handle.raw(), millis(wait)));
        }
        let mut tally = Tally::default();
        let result = live.go_on(handle, work, &mut tally);
        self.served(env, result, &mut tally);
        tally.add_to(pollset::counters(pollset));
    }
}
