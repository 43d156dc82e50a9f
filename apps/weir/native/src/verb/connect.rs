//! Connecting.

use std::os::fd::AsFd;

use rustix::io::Errno;
use rustix::net::SocketAddrAny;
use rustler::Env;

use crate::socket::{Socket, State, Waiter};
use crate::term::atoms;
use crate::term::errno;

/// Begins to connect. True if that is done already, false if the calling process waits for the answer.
pub fn begin(socket: &mut Socket, address: &SocketAddrAny) -> rustix::io::Result<bool> {
    let Some(fd) = &socket.fd else {
        return Err(Errno::BADF);
    };
    match rustix::net::connect(fd.as_fd(), address) {
        Ok(()) => {
            socket.state = State::Connected;
            Ok(true)
        }
        // An interrupted connect goes on by itself; see connect(2).
        Err(Errno::INPROGRESS | Errno::INTR) => {
            socket.state = State::Connecting;
            (socket.readable, socket.writable) = (false, false);
            socket.register()?;
            Ok(false)
        }
        Err(errno) => Err(errno),
    }
}

/// Makes the calling process wait for the connection. Returns its operation.
pub fn await_connection(env: Env, socket: &mut Socket) -> u32 {
    let operation = socket.next_operation();
    socket.connector = Some(Box::new(Waiter { pid: env.pid(), operation }));
    operation
}

/// How the attempt to connect has ended; nothing if it has not.
pub fn outcome(socket: &mut Socket) -> Option<rustix::io::Result<()>> {
    let fd = socket.fd.as_ref()?;
    if !socket.writable && !socket.hung_up {
        return None;
    }
    // One that has failed is said to have hung up; one that takes output only is connected.
    let outcome = match socket.hung_up {
        true => rustix::net::sockopt::socket_error(fd.as_fd()).and_then(|outcome| outcome),
        false => Ok(()),
    };
    socket.state = if outcome.is_ok() { State::Connected } else { State::Open };
    Some(outcome)
}

/// The kernel has news of the connection.
pub fn serve(env: Env, socket: &mut Socket) {
    let Some(outcome) = outcome(socket) else { return };
    let connector = socket.connector.take();
    match outcome {
        Ok(()) => {
            if let Some(waiter) = connector {
                socket.answer(env, *waiter, atoms::ok());
            }
        }
        Err(errno) => {
            if let Some(waiter) = connector {
                socket.answer(env, *waiter, (atoms::error(), errno::atom(env, errno)));
            }
        }
    }
}
