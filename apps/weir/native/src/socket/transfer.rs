//! A file that is being sent: its progress, and the process that waits.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::io::Errno;
use rustler::{Env, LocalPid};

use crate::kernel::file::PartSent;
use crate::socket::{Reason, Socket, Waiter};
use crate::term::atoms;
use crate::term::errno;

/// A file that is being sent.
pub struct Transfer {
    pub ends: Arc<Ends>,
    pub pid: LocalPid,
    pub offset: u64,
    pub remaining: u64,
    pub sent: u64,
    /// Queued bytes that were there before and go first.
    pub ahead: usize,
    /// The operation in which the process waits for room in the socket.
    pub waiting: Option<u32>,
    /// Result of a part that was sent on a dirty scheduler, until the process's next call.
    pub noted: Option<PartSent>,
}

/// Duplicated descriptors, so that a close of the file or socket by others cannot redirect the
/// reads and writes.
pub struct Ends {
    pub file: OwnedFd,
    pub socket: OwnedFd,
}

impl Transfer {
    /// Returns the waiting process, and ends its wait.
    pub fn take_waiter(&mut self) -> Option<Waiter> {
        self.waiting.take().map(|operation| Waiter { pid: self.pid, operation })
    }
}

/// The transfer of a socket, if there is one.
pub fn of(socket: &mut Socket) -> Option<&mut Transfer> {
    socket.output.as_mut()?.transfer.as_deref_mut()
}

/// Ends the transfer, if there is one, because of an error or a close.
pub fn fail(env: Env, socket: &mut Socket, error: Option<Errno>) {
    if let Some(output) = &mut socket.output
        && let Some(mut transfer) = output.transfer.take()
        && let Some(waiter) = transfer.take_waiter()
    {
        let reason = error.map_or(atoms::closed(), |errno| reason(env, errno));
        socket.answer(env, waiter, (atoms::error(), reason));
    }
}

/// Cancels a waiting transfer; bytes already sent stay sent. False if it does not wait in this
/// operation.
pub fn cancel(env: Env, socket: &mut Socket, operation: u32) -> bool {
    match &mut socket.output {
        Some(output) if output.transfer.as_ref().is_some_and(|transfer| transfer.waiting == Some(operation)) => {
            output.transfer = None;
            // Data of other senders has waited behind it.
            socket.enqueue(env);
            true
        }
        _ => false,
    }
}

/// Reports every lost connection as `closed`, like tcp_sendfile_aborted of the inet driver.
pub fn reason(env: Env, errno: Errno) -> Reason {
    match errno {
        Errno::CONNRESET | Errno::NOTCONN | Errno::PIPE => atoms::closed(),
        errno => errno::atom(env, errno),
    }
}
