//! From the caller to the kernel: writing and queueing.
//!
//! `write` has single writes; this module decides what is written, what is queued, and who waits.
//! [`sendfile`] sends files for processes; the queue waits for it. [`queued_file`] sends files
//! from the queues of reactors' sockets.

pub mod queued_file;
pub mod sendfile;
mod write;

use std::os::fd::AsFd;
use std::time::Instant;

use rustix::io::Errno;
use rustix::net::Shutdown;
use rustler::Env;

pub use self::write::{Flat, Part, SLICES, write_once};
use self::write::{allowed, write_parts, write_queue};
use crate::pollset;
use crate::socket::{Ended, Output, Reason, SendWait, Socket, State, Waiter};
use crate::term::atoms;
use crate::term::held::Held;
use crate::value::packet::{self, Packet};
use crate::value::work::Work;

/// Result of a send.
pub enum Sent {
    /// The kernel or the queue has taken everything.
    Done,
    /// Everything is queued. The caller waits for the answer to this operation before it
    /// continues.
    Wait(u32),
    /// Nothing was taken. The caller waits for the answer to this operation and tries again.
    Full(u32),
    Failed(Reason),
}

/// Sends `parts` in the caller's time slice: writes as much as the kernel takes, and queues the
/// rest by reference.
pub fn send(env: Env, socket: &mut Socket, parts: &[impl Part], work: &mut Work) -> Sent {
    if socket.state != State::Connected {
        return Sent::Failed(socket.send_refused());
    }
    shed(env, socket);
    if let Some(refusal) = refusal(env, socket) {
        return refusal;
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
        socket.owner_sent(env);
        return Sent::Done;
    }
    if let Err(errno) = socket.register() {
        return Sent::Failed(socket.output_failed(env, errno, true));
    }
    enqueue(socket, header, parts, written);
    if socket.writable && !waiting {
        // The call has used its time, or `delay_send` is set; the poller writes the rest.
        socket.enqueue(env);
    }
    let queued = socket.output.as_ref().map_or(0, |output| output.queue.len());
    // A send onto an empty queue does not wait, whatever its size; as in the inet driver.
    if socket.reactor {
        return bounded(env, socket, waiting);
    }
    if waiting && queued >= socket.options.high_watermark as usize {
        if let Some(output) = &mut socket.output {
            output.full = true;
        }
        return Sent::Wait(await_queue(env, socket, SendWait::Accepted));
    }
    Sent::Done
}

/// Why nothing may be added to the output now: it is closing, shut down or full.
fn refusal(env: Env, socket: &mut Socket) -> Option<Sent> {
    if let Some(output) = &socket.output {
        if output.is_closing(env) {
            return Some(Sent::Failed(atoms::closed()));
        }
        if output.shutdown.is_some() {
            socket.write_shut = true;
            return Some(Sent::Failed(socket.output_failed(env, Errno::PIPE, true)));
        }
        if output.full {
            return Some(Sent::Full(await_queue(env, socket, SendWait::Refused)));
        }
    }
    None
}

/// Limits the queue of a reactor's socket, for which no process waits. Over the high watermark the
/// socket is throttled: it is no longer read. A throttled socket with more than `max_send_queue`
/// bytes ends; until then replies to requests that were already read are taken. Bytes of files need
/// no memory, so they do not count.
fn bounded(env: Env, socket: &mut Socket, waiting: bool) -> Sent {
    let queued = socket.output.as_ref().map_or(0, |output| output.queue.in_memory());
    if waiting && queued > pollset::private::max_send_queue(socket.pollset) {
        if socket.throttled {
            socket.end(env, Ended::SendQueueFull);
            return Sent::Failed(atoms::closed());
        }
        socket.enqueue(env);
    }
    Sent::Done
}

/// Writes what the kernel takes of `bytes` now; nothing if output is queued. Returns the number of
/// bytes taken. EINVAL if the socket has a packet type, since packets are not sent in parts.
pub fn send_now(env: Env, socket: &mut Socket, bytes: &[u8], work: &mut Work) -> Result<usize, Reason> {
    if socket.state != State::Connected {
        return Err(socket.send_refused());
    }
    if socket.options.packet != Packet::Raw {
        return Err(atoms::einval());
    }
    shed(env, socket);
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

/// Notifies the calling process, once, when the kernel takes output and the queue is empty.
pub fn notify_writable(env: Env, socket: &mut Socket) -> Result<(), Reason> {
    if socket.state != State::Connected {
        return Err(socket.send_refused());
    }
    if let Err(errno) = socket.register() {
        return Err(socket.output_failed(env, errno, true));
    }
    shed(env, socket);
    socket.writability = Some(Box::new(env.pid()));
    if socket.writable && socket.output.is_none() {
        socket.enqueue(env);
    }
    Ok(())
}

/// Makes the calling process wait for the queue. Returns its operation.
fn await_queue(env: Env, socket: &mut Socket, what: SendWait) -> u32 {
    let operation = socket.next_operation();
    let waiter = Waiter { pid: env.pid(), operation };
    let output = socket.output.get_or_insert_with(Output::empty);
    // Entries of processes that were killed while they waited are removed before the list grows.
    if output.waiting.len() == output.waiting.capacity() {
        output.waiting.retain(|(waiter, _)| env.is_process_alive(waiter.pid));
    }
    output.waiting.push((waiter, what));
    operation
}

/// Makes the calling process wait for the last queued byte; then it closes the socket. Returns its
/// operation.
pub fn await_close(env: Env, socket: &mut Socket) -> u32 {
    socket.output.get_or_insert_with(Output::empty).closer = Some(env.pid());
    await_queue(env, socket, SendWait::Flush)
}

/// Shuts down one or both directions; writing after the last queued byte and the end of a file in
/// progress.
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

/// Writes queued output, as much as the kernel takes, and answers the processes that waited for
/// it. During a file transfer none is answered.
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
        let written = match output.queue.source() {
            Some(_) => queued_file::write(env, socket, work),
            None => write_queue(socket, work).map(|()| true),
        };
        match written {
            Ok(true) => {}
            Ok(false) => break,
            Err(errno) => {
                socket.output_failed(env, errno, false);
                return;
            }
        }
    }
    match &socket.output {
        Some(output) if output.transfer.is_some() => sendfile::resume(env, socket, work),
        _ => settle(env, socket),
    }
}

/// Writes queued output, as much as the kernel takes, and answers no process. Returns the number
/// of bytes written, and of those left to retry; zero are left if a write fails.
pub fn drain(socket: &mut Socket) -> (usize, usize) {
    let mut work = Work::of_poll(Instant::now());
    let mut taken = 0;
    while let Some(output) = &socket.output
        && allowed(output) > 0
        // A file may have to be read from a disk.
        && output.queue.source().is_none()
    {
        let before = output.queue.len();
        if write_queue(socket, &mut work).is_err() {
            return (taken, 0);
        }
        let left = socket.output.as_ref().map_or(0, |output| output.queue.len());
        if left == before {
            return (taken, left);
        }
        taken += before - left;
    }
    (taken, 0)
}

/// Answers waiting processes according to the length of the queue, and drops an empty queue.
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
    } else if !empty || output.is_closing(env) {
        socket.output = Some(output);
    } else if let Some(how) = output.shutdown {
        // If this fails, the connection is gone, and the next operation reports it.
        let _ = shutdown(socket, how);
        socket.write_shut = true;
    }
}

/// Drops an empty queue whose closer was killed before it closed the socket.
fn shed(env: Env, socket: &mut Socket) {
    if let Some(output) = &socket.output
        && output.closer.is_some()
        && output.queue.is_empty()
        && output.transfer.is_none()
        && !output.is_closing(env)
    {
        socket.output = None;
    }
}

/// Queues `header` and `parts`, without the first `skip` bytes.
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
