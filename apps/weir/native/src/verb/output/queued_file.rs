//! Files in the send queue of a reactor's socket; a flush of the queue sends them.
//!
//! A flush must not wait for a disk. A part that is not in the page cache is read by a process of
//! `weir_reader`, on a dirty scheduler and without the lock of the socket. Then the socket is
//! visited again; until then the queue waits.

use std::os::fd::AsFd;
use std::sync::Arc;

use rustix::io::Errno;
use rustler::Env;

use crate::kernel::file::{File, Stop};
use crate::kernel::scratch;
use crate::pollset;
use crate::socket::{Fetched, Output, Queued, Socket, State};
use crate::term::atoms;
use crate::value::counters::add;
use crate::value::packet::Packet;
use crate::value::work::Work;
use crate::verb::output::sendfile::MEMORY_PART;
use crate::verb::output::{Part, Sent, bounded, enqueue, flush};

/// Maximum bytes read at once for a queue. Pages that are evicted before they are sent are read
/// again.
const FETCH: u64 = 1024 * 1024;

/// A piece of a combined send.
pub enum Piece<P> {
    Bytes(P),
    File { file: Arc<File>, offset: u64, length: u64 },
}

/// Sends bytes and parts of files in order. Only reactors' sockets, for which no process waits,
/// have files in their queue.
pub fn send(env: Env, socket: &mut Socket, pieces: Vec<Piece<impl Part>>, work: &mut Work) -> Sent {
    if socket.state != State::Connected {
        return Sent::Failed(socket.send_refused());
    }
    // A packet has its length in front and is sent as a whole.
    if socket.options.packet != Packet::Raw {
        return Sent::Failed(atoms::einval());
    }
    if let Err(errno) = socket.register() {
        return Sent::Failed(socket.output_failed(env, errno, true));
    }
    let output = socket.output.get_or_insert_with(Output::empty);
    if output.is_closing(env) || output.shutdown.is_some() {
        return Sent::Failed(atoms::closed());
    }
    let (waiting, before) = (!output.queue.is_empty(), output.queue.len());
    for piece in pieces {
        match piece {
            Piece::Bytes(part) => enqueue(socket, &[], &[part], 0),
            Piece::File { file, offset, length } => {
                let output = socket.output.get_or_insert_with(Output::empty);
                output.queue.push_elsewhere(Queued { file, offset }, length as usize);
            }
        }
    }
    let after = socket.output.as_ref().map_or(0, |output| output.queue.len());
    socket.statistics.sent.count(after - before);
    if !waiting {
        flush(env, socket, work);
    }
    bounded(env, socket, waiting)
}

/// Sends what the kernel takes of the file in front of the queue. False if the file must be read
/// first.
pub fn write(env: Env, socket: &mut Socket, work: &mut Work) -> rustix::io::Result<bool> {
    let (handle, counters) = (socket.handle(), pollset::counters(socket.pollset));
    let (Some(fd), Some(output)) = (&socket.fd, &mut socket.output) else {
        return Err(Errno::NOTCONN);
    };
    let Some((Queued { file, offset }, taken, left)) = output.queue.source() else { return Ok(true) };
    let (offset, wanted) = (offset + taken as u64, work.share_of_file(MEMORY_PART.min(left as u64)));
    let limit = match output.fetched {
        Fetched::Asked => return Ok(false),
        Fetched::UpTo(end) if end > offset => wanted.min(end - offset),
        Fetched::UpTo(_) | Fetched::Unknown => file.in_memory(offset, wanted),
    };
    if limit == 0 {
        output.fetched = Fetched::Asked;
        add(&counters.file_waits, 1);
        // If it is not running, it looks for waiting sockets when it starts.
        if let Some(reader) = env.whereis_pid(atoms::weir_reader()) {
            let _ = env.send(&reader, (atoms::weir_read(), handle.raw()));
        }
        return Ok(false);
    }
    let sent = file.send(fd.as_fd(), offset, limit);
    let bytes = sent.bytes as usize;
    output.queue.advance(bytes);
    if bytes == left {
        output.fetched = Fetched::Unknown;
    }
    work.moved_of_file(bytes);
    match &mut work.tally {
        Some(tally) => tally.wrote(bytes, limit as usize),
        None => counters.wrote(bytes, limit as usize),
    }
    match sent.stop {
        Stop::Limit => Ok(true),
        Stop::Full => {
            socket.writable = false;
            Ok(true)
        }
        // The length was announced before. The peer notices missing bytes by the end of the
        // connection.
        Stop::EndOfFile => {
            add(&counters.files_cut, 1);
            Err(Errno::NODATA)
        }
        Stop::Failed(errno) => Err(errno),
    }
}

/// The part that must be read for the queue of a socket: the file, the offset and the number of
/// bytes.
pub fn wanted(socket: &Socket) -> Option<(Arc<File>, u64, u64)> {
    let output = socket.output.as_ref().filter(|output| output.fetched == Fetched::Asked)?;
    let (Queued { file, offset }, taken, left) = output.queue.source()?;
    Some((file.clone(), offset + taken as u64, FETCH.min(left as u64)))
}

/// Reads a part of a file into the page cache. May wait for a disk. Errors show when it is sent.
pub fn read(file: &File, offset: u64, length: u64) {
    scratch::BUFFER.with_borrow_mut(|buffer| {
        let mut done = 0;
        while done < length {
            let size = buffer.len().min((length - done) as usize);
            match file.read(&mut buffer[..size], offset + done) {
                Ok(n) if n == size => done += n as u64,
                _ => break,
            }
        }
    });
}

/// Notes that a requested part is in memory. The next visit of the socket sends it.
pub fn note(socket: &mut Socket, file: &Arc<File>, offset: u64, length: u64) {
    let still = wanted(socket).is_some_and(|(wanted, from, _)| Arc::ptr_eq(&wanted, file) && from == offset);
    if let Some(output) = socket.output.as_mut().filter(|_| still) {
        output.fetched = Fetched::UpTo(offset + length);
    }
}
