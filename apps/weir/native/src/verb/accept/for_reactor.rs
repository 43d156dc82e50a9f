//! From the backlog to a reactor, which takes its connections itself.

use std::sync::Arc;

use rustix::io::Errno;
use rustler::Env;

use super::{Attempt, attempt, late_options, set_late_options, take};
use crate::listener::Listener;
use crate::socket::Socket;
use crate::socket::table;
use crate::value::handle::Handle;
use crate::value::options::Options;

/// What there was for a reactor.
pub enum Taken {
    Connection(Handle),
    /// One that the listener has closed, or that another reactor gets: there may be others.
    NotHere,
    Nothing,
}

/// Whether there may be connections for the reactor that has a listening socket.
pub fn may_have_some(socket: &Socket) -> bool {
    socket.readable.is_ready() || listener_of(socket).is_some_and(|listener| listener.is_given_to(socket.pollset))
}

fn listener_of(socket: &Socket) -> Option<&Arc<Listener>> {
    let (listener, _) = socket.listening.as_ref()?.listener.as_ref()?;
    Some(listener)
}

/// A connection that another reactor has given to this one; or else the next is let in, and given to another if that has fewer.
fn attempt_or_take_given(env: Env, socket: &mut Socket, listener: &Listener) -> Attempt {
    if let Some(arrival) = listener.take_given(socket.pollset) {
        return Attempt::Admitted(arrival);
    }
    match attempt(env, socket, listener, None) {
        Attempt::Admitted(arrival) => {
            listener.hand_over(env, socket.pollset, arrival).map_or(Attempt::Refused, Attempt::Admitted)
        }
        other => other,
    }
}

/// Takes a connection off the backlog for the reactor that calls, onto its pollset. Nothing if there is none, if the
/// listener admits none now, or if the sockets are another reactor's.
pub fn take_connection(env: Env, socket: &mut Socket) -> Result<Taken, Errno> {
    let owner = env.pid();
    if socket.listening.as_ref().and_then(|listening| listening.reactor) != Some(owner) {
        socket.readable.end();
        return Ok(Taken::Nothing);
    }
    let (fd, permit) = match listener_of(socket).map(Arc::clone) {
        None => match take(env, socket)? {
            Some(fd) => (fd, None),
            None => return Ok(Taken::Nothing),
        },
        Some(listener) => match attempt_or_take_given(env, socket, &listener) {
            Attempt::Admitted(arrival) => {
                let (fd, permit) = arrival.into_parts(listener, owner);
                (fd, Some(permit))
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
    let about = (module, socket.pollset, Options { debug: false, ..socket.options });
    let handle = accepted.open_in_reactor(fd, about, owner);
    accepted.permit = permit;
    // Its data is read at the next poll.
    accepted.enqueue(env);
    Ok(Taken::Connection(handle))
}
