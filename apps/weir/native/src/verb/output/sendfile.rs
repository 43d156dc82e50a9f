//! sendfile: from a file to the kernel, without a copy.
//!
//! The sending process drives the transfer: [`begin`] once, then one part after another. A part in
//! the page cache is sent at once. Any other part is sent on a dirty scheduler, without the lock
//! of the socket, because the kernel waits for a disk. If the socket takes no more, the process
//! waits, as for any operation, until the poller reports room.
//!
//! A call on a dirty scheduler must not send messages: the VM drops messages of a process that is
//! being killed, and takes that process's lock for them, under which the death of the process asks
//! for the socket. So such a call only records how far its part came ([`note`]). The next call on
//! an ordinary scheduler acts on it.

use std::num::NonZeroU64;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use rustix::fs::Advice;
use rustler::Env;

use crate::kernel::file;
use crate::kernel::file::{PartSent, Stop};
use crate::pollset;
use crate::socket::message;
use crate::socket::transfer::{self, Ends, Transfer, reason};
use crate::socket::{Output, Reason, Socket, State};
use crate::term::atoms;
use crate::term::errno;
use crate::value::counters::add;
use crate::value::work::Work;
use crate::verb::output;

/// Maximum bytes per part from a disk. Bounds how long the connection may outlive a close of the
/// socket.
pub const DISK_PART: u64 = 4 * 1024 * 1024;

/// Maximum bytes per part in memory, which is sent in the caller's time slice: as much as a poll
/// moves. Smaller parts wake the peer more often, which costs more (20 % at 256 KiB).
pub const MEMORY_PART: u64 = 1024 * 1024;

/// A part of a file, to be sent without the socket's lock.
pub struct FilePart {
    ends: Arc<Ends>,
    offset: u64,
    limit: u64,
}

/// The next step of the sending process.
pub enum Step {
    Send(FilePart),
    Wait(u32),
    /// The transfer was ended, by an event of the socket.
    Closed,
}

/// State of a transfer after a part.
pub enum Progress {
    /// All is sent: the number of bytes.
    Done(u64),
    More,
    /// The kernel takes no more for now.
    Full,
    Failed(Reason),
}

/// Starts to send `length` bytes of a file at `offset`, or up to its end, behind the queued
/// output. Later sends go after it.
pub fn begin(env: Env, socket: &mut Socket, file: BorrowedFd, offset: u64, length: u64) -> Result<(), Reason> {
    if socket.owner != Some(env.pid()) {
        return Err(atoms::not_owner());
    }
    let Some(fd) = socket.fd.as_ref().filter(|_| socket.state == State::Connected) else {
        return Err(atoms::enotconn());
    };
    if let Some(output) = &socket.output {
        if output.is_closing(env) {
            return Err(atoms::closed());
        }
        if output.transfer.is_some() {
            return Err(atoms::einval());
        }
    }
    let reason = |errno| errno::atom(env, errno);
    let ends = Ends {
        file: rustix::io::fcntl_dupfd_cloexec(file, 0).map_err(reason)?,
        socket: rustix::io::fcntl_dupfd_cloexec(fd.as_fd(), 0).map_err(reason)?,
    };
    // Files that take no advice are read without it.
    let _ = rustix::fs::fadvise(&ends.file, offset, NonZeroU64::new(length), Advice::Sequential);
    socket.register().map_err(reason)?;
    let output = socket.output.get_or_insert_with(Output::empty);
    output.transfer = Some(Box::new(Transfer {
        ends: Arc::new(ends),
        pid: env.pid(),
        offset,
        remaining: length,
        sent: 0,
        ahead: output.queue.len(),
        waiting: None,
        noted: None,
    }));
    Ok(())
}

/// Returns the next part of the caller's transfer, of at most `limit` bytes.
pub fn next(env: Env, socket: &mut Socket, limit: u64) -> Step {
    if transfer_of(env, socket).is_none() {
        return Step::Closed;
    }
    output::flush(env, socket, &mut Work::of_caller());
    let writable = socket.writable;
    let Some(transfer) = transfer_of(env, socket) else {
        return Step::Closed;
    };
    if transfer.ahead > 0 || !writable {
        return await_room(env, socket).map_or(Step::Closed, Step::Wait);
    }
    let part = transfer.part(limit);
    // Before the part, not after it, so that an edge in the meantime is not lost.
    socket.writable = false;
    Step::Send(part)
}

impl FilePart {
    /// Sends what the kernel takes of the bytes in memory. `None` if the first byte is not in
    /// memory.
    pub fn send_from_memory(self) -> Option<PartSent> {
        let limit = file::in_memory(self.ends.file.as_fd(), self.offset, self.limit);
        (limit > 0).then(|| FilePart { limit, ..self }.send())
    }

    /// Sends what the kernel takes; may wait for the disk.
    pub fn send(&self) -> PartSent {
        file::send(self.ends.file.as_fd(), self.ends.socket.as_fd(), self.offset, self.limit)
    }
}

/// Leaves a part for another attempt.
pub fn put_off(socket: &mut Socket) {
    socket.writable = true;
}

/// The part that was put off in the caller's transfer, for a call on a dirty scheduler. `None` if
/// the transfer is over.
pub fn disk_part(env: Env, socket: &mut Socket) -> Option<FilePart> {
    let part = transfer_of(env, socket).filter(|transfer| transfer.noted.is_none())?.part(DISK_PART);
    socket.writable = false;
    Some(part)
}

/// Records the result of such a part, for [`take_noted`].
pub fn note(socket: &mut Socket, part: &FilePart, sent: PartSent) {
    if let Some(transfer) = transfer::of(socket).filter(|transfer| Arc::ptr_eq(&transfer.ends, &part.ends)) {
        transfer.noted = Some(sent);
    }
}

/// Takes the recorded result of a part that was sent on a dirty scheduler, for [`advance`].
pub fn take_noted(env: Env, socket: &mut Socket) -> Option<PartSent> {
    transfer_of(env, socket)?.noted.take()
}

/// Continues the transfer after a part. After the last one, output that waited for it is sent.
pub fn advance(env: Env, socket: &mut Socket, sent: PartSent) -> Progress {
    let Some(transfer) = transfer::of(socket) else {
        return Progress::Failed(atoms::closed());
    };
    transfer.offset += sent.bytes;
    transfer.remaining -= sent.bytes;
    transfer.sent += sent.bytes;
    let (remaining, total) = (transfer.remaining, transfer.sent);
    if sent.bytes > 0 {
        socket.has_replied();
    }
    let counters = pollset::counters(socket.pollset);
    add(&counters.writes, 1);
    add(&counters.written_bytes, sent.bytes);
    match sent.stop {
        Stop::Failed(errno) => {
            socket.output_failed(env, errno, true);
            return Progress::Failed(reason(env, errno));
        }
        Stop::Full => {
            add(&counters.short_writes, 1);
            // An edge in the meantime has set `writable`.
            return if socket.writable { Progress::More } else { Progress::Full };
        }
        Stop::Limit if remaining > 0 => {
            socket.writable = true;
            return Progress::More;
        }
        Stop::Limit | Stop::EndOfFile => {}
    }
    socket.writable = true;
    if let Some(output) = &mut socket.output {
        output.transfer = None;
    }
    output::flush(env, socket, &mut Work::of_caller());
    Progress::Done(total)
}

/// Continues a transfer whose process waits. Sends parts in memory here, which saves the process a
/// round trip each. The process is answered at the end, or if a part must come from a disk.
pub fn resume(env: Env, socket: &mut Socket, work: &mut Work) {
    // The end of the transfer may close the socket.
    let handle = socket.handle();
    while socket.writable
        && let Some(transfer) = transfer::of(socket)
        && transfer.ahead == 0
    {
        if work.is_over() {
            return socket.enqueue(env);
        }
        let part = transfer.part(work.share(MEMORY_PART));
        let Some(waiter) = transfer.take_waiter() else { return };
        socket.writable = false;
        let Some(sent) = part.send_from_memory() else {
            put_off(socket);
            socket.answer(env, waiter, atoms::retry());
            return;
        };
        work.moved(sent.bytes as usize);
        match advance(env, socket, sent) {
            Progress::More | Progress::Full => {
                if let Some(transfer) = transfer::of(socket) {
                    transfer.waiting = Some(waiter.operation);
                }
            }
            Progress::Done(bytes) => {
                message::answer(env, handle, waiter, (atoms::ok(), bytes));
                return;
            }
            Progress::Failed(reason) => {
                message::answer(env, handle, waiter, (atoms::error(), reason));
                return;
            }
        }
    }
}

impl Transfer {
    /// The next part, of at most `limit` bytes.
    fn part(&self, limit: u64) -> FilePart {
        FilePart { ends: self.ends.clone(), offset: self.offset, limit: self.remaining.min(limit) }
    }
}

fn transfer_of<'a>(env: Env, socket: &'a mut Socket) -> Option<&'a mut Transfer> {
    transfer::of(socket).filter(|transfer| transfer.pid == env.pid())
}

/// Makes the calling process wait for room. Returns its operation; `None` if its transfer is over.
pub fn await_room(env: Env, socket: &mut Socket) -> Option<u32> {
    let operation = socket.next_operation();
    let transfer = transfer_of(env, socket)?;
    transfer.waiting = Some(operation);
    Some(operation)
}
