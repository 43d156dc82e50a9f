//! From the backlog to a reactor, which accepts its connections itself.

use std::sync::Arc;

use rustix::io::Errno;
use rustler::{Env, LocalPid};

use super::{Attempt, attempt, late_options, set_late_options, take};
use crate::listener::Listener;
use crate::pollset;
use crate::socket::Socket;
use crate::socket::table;
use crate::value::chaos;
use crate::value::handle::Handle;
use crate::value::options::Options;

/// Result of an attempt to take a connection for a reactor.
pub enum Taken {
    Connection(Handle),
    /// The listener has closed it, or another reactor gets it; there may be more.
    NotHere,
    Nothing,
}

/// Accepts a connection for the calling reactor, or for another reactor of the listener with
/// clearly fewer sockets. `Nothing` if there is none, if the listener admits none now, or if the
/// listening socket belongs to another reactor.
pub fn take_connection(env: Env, socket: &mut Socket) -> Result<Taken, Errno> {
    let own = env.pid();
    if socket.listening.as_ref().and_then(|listening| listening.reactor) != Some(own) {
        socket.readable.end();
        return Ok(Taken::Nothing);
    }
    let listener = socket.listening.as_ref().and_then(|listening| listening.listener.as_ref());
    let listener = listener.map(|(listener, _)| Arc::clone(listener));
    let (fd, permit, (pollset, owner)) = match listener {
        None => match take(env, socket)? {
            Some(fd) => (fd, None, (socket.pollset, own)),
            None => return Ok(Taken::Nothing),
        },
        Some(listener) => match attempt(env, socket, &listener, None) {
            Attempt::Admitted(arrival) => {
                let taker = taker(&listener, (socket.pollset, own));
                let (fd, permit) = arrival.into_parts(listener, taker.1);
                (fd, Some(permit), taker)
            }
            Attempt::Refused => return Ok(Taken::NotHere),
            Attempt::Nothing => return Ok(Taken::Nothing),
        },
    };
    let (Some(module), Some(mut accepted)) = (socket.module, table::allocate()) else {
        if let Some(permit) = permit {
            permit.end(env);
        }
        return Err(Errno::MFILE);
    };
    set_late_options(&fd, late_options(socket));
    let about = (module, pollset, Options { debug: false, ..socket.options });
    let handle = accepted.open_in_reactor(fd, about, owner);
    accepted.permit = permit;
    if owner != own {
        return give(env, &mut accepted);
    }
    // Its data is read at the next poll.
    accepted.enqueue(env);
    Ok(Taken::Connection(handle))
}

/// The reactor that gets the connection, and its pollset.
fn taker(listener: &Listener, own: (u16, LocalPid)) -> (u16, LocalPid) {
    let other = listener.reactor_with_fewer(own.0).and_then(|pollset| Some((pollset, pollset::poller(pollset)?)));
    other.unwrap_or(own)
}

/// Gives a connection to another reactor, which learns of it at its next poll. If that reactor is
/// already dead, the connection is closed here, because the reaper may have passed its slot. If it
/// dies later, the reaper waits for the lock of the slot and finds the connection.
fn give(env: Env, accepted: &mut Socket) -> Result<Taken, Errno> {
    chaos::between();
    if accepted.owner.is_some_and(|owner| pollset::is_polled_by(accepted.pollset, owner)) {
        accepted.unannounced = true;
        accepted.enqueue(env);
    } else {
        accepted.release(env);
    }
    Ok(Taken::NotHere)
}
