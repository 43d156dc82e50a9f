//! A file on its way through a socket: how far it is, and who waits for it.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::io::Errno;
use rustler::{Env, LocalPid};

use crate::kernel::file::PartSent;
use crate::socket::{Reason, Socket, Waiter};
use crate::term::atoms;
use crate::term::errno;

/// A file on its way.
pub struct Transfer {
    pub ends: Arc<Ends>,
    pub pid: LocalPid,
    pub offset: u64,
    pub remaining: u64,
    pub sent: u64,
    /// Queued bytes that go first: those that were there before.
    pub ahead: usize,
    /// The operation in which the process waits for room.
    pub waiting: Option<u32>,
    /// How far a part came that was sent on a dirty scheduler, until the next call of the process.
    pub noted: Option<PartSent>,
}

/// Descriptors of our own, so that a close of the file or of the socket by others cannot have a part read or write
/// something else.
pub struct Ends {
    pub file: OwnedFd,
    pub socket: OwnedFd,
}

impl Transfer {
    /// The process, if it waits: it does not any more.
    pub fn take_waiter(&mut self) -> Option<Waiter> {
        self.waiting.take().map(|operation| Waiter { pid: self.pid, operation })
    }
}

/// The transfer of a socket, if there is one.
pub fn of(socket: &mut Socket) -> Option<&mut Transfer> {
    socket.output.as_mut()?.transfer.as_deref_mut()
}

/// Ends the transfer, if there is one, for what has happened to the socket: an error, or a close.
pub fn fail(env: Env, socket: &mut Socket, error: Option<Errno>) {
    if let Some(output) = &mut socket.output
        && let Some(mut transfer) = output.transfer.take()
        && let Some(waiter) = transfer.take_waiter()
    {
        let reason = error.map_or(atoms::closed(), |errno| reason(env, errno));
        socket.answer(env, waiter, (atoms::error(), reason));
    }
}

/// Takes a transfer that waits back: what of it is sent is sent. False if it does not wait in this operation.
pub fn cancel(env: Env, socket: &mut Socket, operation: u32) -> bool {
    match &mut socket.output {
        Some(output) if output.transfer.as_ref().is_some_and(|transfer| transfer.waiting == Some(operation)) => {
            output.transfer = None;
            // Others' data has waited behind it.
            socket.enqueue(env);
            true
        }
        _ => false,
    }
}

/// However the connection ended, it is closed; see tcp_sendfile_aborted of the inet driver.
pub fn reason(env: Env, errno: Errno) -> Reason {
    match errno {
        Errno::CONNRESET | Errno::NOTCONN | Errno::PIPE => atoms::closed(),
        errno => errno::atom(env, errno),
    }
}
