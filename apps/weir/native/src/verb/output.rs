//! From the caller to the kernel: writing and queueing.

use std::io::IoSlice;
use std::os::fd::{AsFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags, Shutdown};
use rustler::{Binary, Env};

use crate::pollset;
use crate::socket::{Ended, Output, Reason, SendWait, Socket, State, Waiter};
use crate::term::atoms;
use crate::term::held::{Held, HeldBinary};
use crate::value::counters::Tally;
use crate::value::packet::{self, Packet};
use crate::value::work::Work;
use crate::verb::sendfile;

/// Slices and bytes of one write, and parts of one send. The bytes bound how long the kernel copies.
pub const SLICES: usize = 64;
const WRITE: usize = 256 * 1024;

/// How a send went.
pub enum Sent {
    /// The kernel or the queue has all of it.
    Done,
    /// It is queued, and the caller waits for an answer to this operation before it goes on.
    Wait(u32),
    /// Nothing was taken; the caller waits for an answer to this operation and tries again.
    Full(u32),
    Failed(Reason),
}

/// Bytes of a send, and how they are kept if the kernel does not take them.
pub trait Part {
    fn bytes(&self) -> &[u8];

    /// A reference to the bytes from `skip` on; nothing if they have to be copied.
    fn hold(&self, skip: usize) -> Option<HeldBinary>;
}

impl Part for Binary<'_> {
    fn bytes(&self) -> &[u8] {
        self.as_slice()
    }

    fn hold(&self, skip: usize) -> Option<HeldBinary> {
        let rest = self.make_subbinary(skip, self.len() - skip).ok()?;
        Some(HeldBinary::new(&rest))
    }
}

/// Bytes that are there for the call only.
pub struct Flat<'a>(pub &'a [u8]);

impl Part for Flat<'_> {
    fn bytes(&self) -> &[u8] {
        self.0
    }

    fn hold(&self, _skip: usize) -> Option<HeldBinary> {
        None
    }
}

/// Sends `parts` for `pid`, in its own time slice: written at once as far as the kernel takes them, and queued by
/// reference from there on.
pub fn send(env: Env, socket: &mut Socket, parts: &[impl Part], work: &mut Work) -> Sent {
    if socket.state != State::Connected {
        return Sent::Failed(socket.send_refused());
    }
    if let Some(output) = &socket.output {
        if output.closing {
            return Sent::Failed(atoms::closed());
        }
        if output.shutdown.is_some() {
            socket.write_shut = true;
            return Sent::Failed(socket.output_failed(env, Errno::PIPE, true));
        }
        if output.full {
            return Sent::Full(await_queue(env, socket, SendWait::Refused));
        }
    }
    let body = parts.iter().map(|part| part.bytes().len()).sum();
    let Some((header, header_size)) = packet::header(socket.options.packet, body) else {
        return Sent::Failed(atoms::emsgsize());
    };
    let header = &header[..header_size];
    let size = header.len() + body;
    socket.statistics.sent.count(size);
    if size == 0 {
        return Sent::Done;
    }
    let waiting = socket.output.as_ref().is_some_and(|output| !output.queue.is_empty() || output.transfer.is_some());
    let at_once = !waiting && !socket.options.delay_send;
    let mut written = 0;
    while at_once && socket.writable && written < size && !work.is_over() {
        match write_parts(socket, header, parts, written, work) {
            Ok(n) => written += n,
            Err(errno) => return Sent::Failed(socket.output_failed(env, errno, true)),
        }
    }
    if written == size {
        return Sent::Done;
    }
    if let Err(errno) = socket.register() {
        return Sent::Failed(socket.output_failed(env, errno, true));
    }
    enqueue(socket, header, parts, written);
    if socket.writable && !waiting {
        // The call has done enough, or is asked not to; the poller writes the rest.
        socket.enqueue(env);
    }
    let queued = socket.output.as_ref().map_or(0, |output| output.queue.len());
    // A send onto an empty queue does not wait, however large it is; the inet driver's does not either.
    if socket.reactor {
        // Nobody waits for a reactor's socket: what bounds the queue is its limit, and that requests are not read any
        // more. The replies to those that were read before that are taken.
        if waiting && queued > pollset::private::max_send_queue(socket.pollset) {
            if socket.throttled {
                socket.end(env, Ended::SendQueueFull);
                return Sent::Failed(atoms::closed());
            }
            socket.enqueue(env);
        }
        return Sent::Done;
    }
    if waiting && queued >= socket.options.high_watermark as usize {
        if let Some(output) = &mut socket.output {
            output.full = true;
        }
        return Sent::Wait(await_queue(env, socket, SendWait::Accepted));
    }
    Sent::Done
}

/// Writes what the kernel takes of `bytes` now, and nothing if something is queued before them. Returns how many it has
/// taken. EINVAL for a socket of packets, which do not go out in parts.
pub fn send_now(env: Env, socket: &mut Socket, bytes: &[u8], work: &mut Work) -> Result<usize, Reason> {
    if socket.state != State::Connected {
        return Err(socket.send_refused());
    }
    if socket.options.packet != Packet::Raw {
        return Err(atoms::einval());
    }
    let mut taken = 0;
    while socket.output.is_none() && socket.writable && taken < bytes.len() && !work.is_over() {
        match write_parts(socket, &[], &[Flat(bytes)], taken, work) {
            Ok(n) => taken += n,
            Err(errno) => return Err(socket.output_failed(env, errno, true)),
        }
    }
    if taken > 0 {
        socket.statistics.sent.count(taken);
    }
    Ok(taken)
}

/// Has the calling process told, once, when the kernel takes output and nothing is queued.
pub fn notify_writable(env: Env, socket: &mut Socket) -> Result<(), Reason> {
    if socket.state != State::Connected {
        return Err(socket.send_refused());
    }
    if let Err(errno) = socket.register() {
        return Err(socket.output_failed(env, errno, true));
    }
    socket.writability = Some(Box::new(env.pid()));
    if socket.writable && socket.output.is_none() {
        socket.enqueue(env);
    }
    Ok(())
}

/// Makes the calling process wait at the queue. Returns its operation.
fn await_queue(env: Env, socket: &mut Socket, what: SendWait) -> u32 {
    let operation = socket.next_operation();
    let waiter = Waiter { pid: env.pid(), operation };
    let output = socket.output.get_or_insert_with(Output::empty);
    // Processes that were killed while they waited leave their entry; it goes when the list would grow over it.
    if output.waiting.len() == output.waiting.capacity() {
        output.waiting.retain(|(waiter, _)| env.is_process_alive(waiter.pid));
    }
    output.waiting.push((waiter, what));
    operation
}

/// Makes the calling process wait for the last queued byte, to close then. Returns its operation.
pub fn await_close(env: Env, socket: &mut Socket) -> u32 {
    socket.output.get_or_insert_with(Output::empty).closing = true;
    await_queue(env, socket, SendWait::Flush)
}

/// Shuts one or both directions down; writing after the last queued byte and the end of a file that is being sent.
pub fn shutdown(socket: &mut Socket, how: Shutdown) -> rustix::io::Result<()> {
    if how != Shutdown::Read
        && let Some(output) = &mut socket.output
        && (!output.queue.is_empty() || output.transfer.is_some())
    {
        output.shutdown = Some(how);
        return Ok(());
    }
    let Some(fd) = &socket.fd else {
        return Err(Errno::NOTCONN);
    };
    let result = rustix::net::shutdown(fd.as_fd(), how);
    socket.write_shut |= how != Shutdown::Read && result.is_err();
    result
}

/// Writes what is queued, as far as the kernel takes it, and lets those go on who waited for that. Nobody waits for
/// less than a file that is being sent and what is ahead of it.
pub fn flush(env: Env, socket: &mut Socket, work: &mut Work) {
    loop {
        let Some(output) = &socket.output else { return };
        if allowed(output) == 0 || !socket.writable {
            break;
        }
        if work.is_over() {
            socket.enqueue(env);
            break;
        }
        if let Err(errno) = write_queue(socket, work) {
            socket.output_failed(env, errno, false);
            return;
        }
    }
    match &socket.output {
        Some(output) if output.transfer.is_some() => sendfile::resume(env, socket, work),
        _ => settle(env, socket),
    }
}

/// Queued bytes that may go out now: not those behind a file.
fn allowed(output: &Output) -> usize {
    output.transfer.as_ref().map_or(output.queue.len(), |transfer| transfer.ahead)
}

/// Answers those whom the queue has reached, and lets go of an empty queue.
fn settle(env: Env, socket: &mut Socket) {
    let low = socket.options.low_watermark as usize;
    let Some(mut output) = socket.output.take() else { return };
    let (length, empty) = (output.queue.len(), output.queue.is_empty());
    if length <= low || empty {
        output.full = false;
        output.waiting.retain(|&(waiter, what)| match what {
            SendWait::Accepted => {
                socket.answer(env, waiter, atoms::ok());
                false
            }
            SendWait::Refused => {
                socket.answer(env, waiter, atoms::retry());
                false
            }
            SendWait::Flush if empty => {
                socket.answer(env, waiter, atoms::ok());
                false
            }
            SendWait::Flush => true,
        });
    }
    if empty && socket.lingering {
        socket.release(env);
    } else if !empty || output.closing {
        socket.output = Some(output);
    } else if let Some(how) = output.shutdown {
        // The connection is gone already where this fails, and the next operation says so.
        let _ = shutdown(socket, how);
        socket.write_shut = true;
    }
}

/// Queues `header` and `parts` but for their first `skip` bytes.
fn enqueue(socket: &mut Socket, header: &[u8], parts: &[impl Part], mut skip: usize) {
    let output = socket.output.get_or_insert_with(Output::empty);
    let skipped = skip.min(header.len());
    skip -= skipped;
    output.queue.push_copy(&header[skipped..]);
    for part in parts {
        let bytes = part.bytes();
        let skipped = skip.min(bytes.len());
        skip -= skipped;
        output.queue.push(&bytes[skipped..], || part.hold(skipped).map(Held::Binary));
    }
}

/// One write of `header` and `parts` but for their first `skip` bytes.
fn write_parts(
    socket: &mut Socket,
    header: &[u8],
    parts: &[impl Part],
    mut skip: usize,
    work: &mut Work,
) -> rustix::io::Result<usize> {
    let Some(fd) = &socket.fd else {
        return Err(Errno::NOTCONN);
    };
    if let [part] = parts
        && header.is_empty()
    {
        let bytes = &part.bytes()[skip..];
        let bytes = &bytes[..bytes.len().min(WRITE)];
        let result = retry(|| rustix::net::send(fd.as_fd(), bytes, SendFlags::NOSIGNAL));
        return written(socket, result, bytes.len(), work);
    }
    let mut slices = [IoSlice::new(&[]); SLICES];
    let (mut count, mut total) = (0, 0);
    for bytes in std::iter::once(header).chain(parts.iter().map(|part| part.bytes())) {
        let skipped = skip.min(bytes.len());
        skip -= skipped;
        let bytes = &bytes[skipped..];
        let bytes = &bytes[..bytes.len().min(WRITE - total)];
        if bytes.is_empty() {
            continue;
        }
        slices[count] = IoSlice::new(bytes);
        count += 1;
        total += bytes.len();
        if count == SLICES || total == WRITE {
            break;
        }
    }
    let result = write_slices(fd, &slices[..count]);
    written(socket, result, total, work)
}

/// One write of the front of the queue.
fn write_queue(socket: &mut Socket, work: &mut Work) -> rustix::io::Result<()> {
    let (Some(fd), Some(output)) = (&socket.fd, &socket.output) else {
        return Err(Errno::NOTCONN);
    };
    let mut slices = [IoSlice::new(&[]); SLICES];
    let (count, total) = output.queue.front(&mut slices, WRITE.min(allowed(output)));
    let result = write_slices(fd, &slices[..count]);
    let n = written(socket, result, total, work)?;
    if let Some(output) = &mut socket.output {
        output.queue.advance(n);
        if let Some(transfer) = &mut output.transfer {
            transfer.ahead -= n;
        }
    }
    Ok(())
}

fn write_slices(fd: &OwnedFd, slices: &[IoSlice]) -> rustix::io::Result<usize> {
    retry(|| {
        let mut none = SendAncillaryBuffer::default();
        rustix::net::sendmsg(fd.as_fd(), slices, &mut none, SendFlags::NOSIGNAL)
    })
}

fn retry(mut call: impl FnMut() -> rustix::io::Result<usize>) -> rustix::io::Result<usize> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            result => return result,
        }
    }
}

/// One write of bytes that are nobody's queue: how many the kernel has taken.
pub fn write_once(socket: &mut Socket, bytes: &[u8], work: &mut Work, tally: &mut Tally) -> rustix::io::Result<usize> {
    let Some(fd) = &socket.fd else {
        return Err(Errno::NOTCONN);
    };
    let bytes = &bytes[..bytes.len().min(WRITE)];
    let n = match retry(|| rustix::net::send(fd.as_fd(), bytes, SendFlags::NOSIGNAL)) {
        Err(Errno::AGAIN) => 0,
        result => result?,
    };
    tally.wrote(n, bytes.len());
    work.moved(n);
    if n < bytes.len() {
        socket.writable = false;
    }
    Ok(n)
}

/// What the result of a write says about the next one: a short one means that the kernel is full, and an edge follows
/// when it is not.
fn written(
    socket: &mut Socket,
    result: rustix::io::Result<usize>,
    wanted: usize,
    work: &mut Work,
) -> rustix::io::Result<usize> {
    let n = match result {
        Ok(n) => n,
        Err(Errno::AGAIN) => 0,
        Err(errno) => return Err(errno),
    };
    match &mut work.tally {
        Some(tally) => tally.wrote(n, wanted),
        None => pollset::counters(socket.pollset).wrote(n, wanted),
    }
    work.moved(n);
    if n < wanted {
        socket.writable = false;
    }
    Ok(n)
}
