//! From the kernel to the owner: reading, taking packets off what was read, delivering.

use std::cell::RefCell;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::buffer::spare_capacity;
use rustix::io::Errno;
use rustix::net::RecvFlags;
use rustler::{Encoder, Env, OwnedBinary, Term};

use crate::pollset;
use crate::socket::message;
use crate::socket::{Reason, Receiver, Socket, State, Waiter};
use crate::term::atoms;
use crate::term::data::{self, Data, LARGE};
use crate::value::packet::{self, Front, Packet};
use crate::value::work::Work;

/// What a read goes into before its size is known. One for each thread: a visit is over before the next begins.
const SCRATCH: usize = 64 * 1024;

/// From this size on a read is followed by one straight into a binary, which saves a copy; and so is the rest of a packet
/// that lacks as much.
const BULK: usize = 16 * 1024;

/// The largest of those, however large `buffer` is: one read is one visit's work at most.
const BULK_MAX: usize = 256 * 1024;

thread_local! {
    static BUFFER: RefCell<Box<[u8]>> = RefCell::new(vec![0; SCRATCH].into_boxed_slice());
}

/// What an attempt to receive gave.
pub enum Received<'a> {
    Data(Term<'a>),
    /// Nothing, or not enough, is there: the pollset goes on when more comes.
    NotYet,
    Failed(Reason),
}

/// What an attempt to take a packet off the bytes that were read gave.
enum Taken<'a> {
    Data(Data<'a>),
    /// It is not complete: so many bytes are missing, or nobody knows how many.
    Missing(Option<usize>),
    /// It is none, or too long.
    Invalid,
}

/// What one read of the kernel gave.
enum Read<T> {
    Some(T),
    WouldBlock,
    /// End of input, or an error.
    End(Option<Errno>),
}

/// Takes what is ready to whoever asked for it: the process in `recv` or the owner of the active socket.
pub fn serve(env: Env, socket: &mut Socket, work: &mut Work) {
    if socket.reactor {
        // It goes into the next batch.
        return socket.enqueue(env);
    }
    // A receiver that was killed while it waited leaves its data to the next.
    if let Some(receiver) = socket.receiver.take()
        && env.is_process_alive(receiver.waiter.pid)
    {
        // The end of input may be the end of the socket.
        let handle = socket.handle();
        match receive(env, socket, receiver.length, work) {
            Received::NotYet => {
                socket.receiver = Some(receiver);
                return;
            }
            Received::Failed(reason) => {
                message::answer(env, handle, receiver.waiter, (atoms::error(), reason));
                return;
            }
            Received::Data(data) => {
                message::answer(env, handle, receiver.waiter, (atoms::ok(), data));
            }
        }
    }
    while socket.is_active() {
        if work.is_over() {
            return socket.enqueue(env);
        }
        work.stepped();
        let missing = match take(env, socket, 0) {
            Taken::Data(data) => {
                message::data(env, socket, data);
                continue;
            }
            Taken::Invalid => {
                socket.input_ended(env, Some(Errno::MSGSIZE));
                return;
            }
            Taken::Missing(missing) => missing,
        };
        // After the end there is only what was put back.
        if socket.read_closed {
            return;
        }
        if !socket.readable {
            if let Err(errno) = socket.register() {
                socket.input_ended(env, Some(errno));
            }
            return;
        }
        match read(env, socket, missing, work) {
            Read::Some(Taken::Data(data)) => message::data(env, socket, data),
            Read::Some(Taken::Missing(_)) => {}
            Read::Some(Taken::Invalid) => {
                socket.input_ended(env, Some(Errno::MSGSIZE));
                return;
            }
            Read::WouldBlock => return,
            Read::End(error) => {
                socket.input_ended(env, error);
                return;
            }
        }
    }
}

/// What a reactor's socket has next.
pub enum Next<'a> {
    Data(Term<'a>),
    Nothing,
    /// The end of the input, or an error.
    End(Option<Errno>),
}

/// Takes the next packet of a reactor's socket.
pub fn next<'a>(env: Env<'a>, socket: &mut Socket, work: &mut Work) -> Next<'a> {
    loop {
        let missing = match take(env, socket, 0) {
            Taken::Data(data) => return Next::Data(data.term),
            Taken::Invalid => return Next::End(Some(Errno::MSGSIZE)),
            Taken::Missing(missing) => missing,
        };
        if !socket.readable {
            return match socket.register() {
                Ok(()) => Next::Nothing,
                Err(errno) => Next::End(Some(errno)),
            };
        }
        match read(env, socket, missing, work) {
            Read::Some(Taken::Data(data)) => return Next::Data(data.term),
            Read::Some(Taken::Missing(_)) if work.is_over() => {
                socket.enqueue(env);
                return Next::Nothing;
            }
            Read::Some(Taken::Missing(_)) => work.stepped(),
            Read::Some(Taken::Invalid) => return Next::End(Some(Errno::MSGSIZE)),
            Read::WouldBlock => return Next::Nothing,
            Read::End(error) => return Next::End(error),
        }
    }
}

/// Receives `length` bytes, or a packet if that is zero. Data that is there but not enough stays for the next attempt.
pub fn receive<'a>(env: Env<'a>, socket: &mut Socket, length: usize, work: &mut Work) -> Received<'a> {
    loop {
        let missing = match take(env, socket, length) {
            Taken::Data(data) => return Received::Data(data.term),
            Taken::Invalid => return Received::Failed(socket.input_ended(env, Some(Errno::MSGSIZE))),
            Taken::Missing(missing) => missing,
        };
        if !socket.readable {
            return Received::NotYet;
        }
        if work.is_over() {
            socket.enqueue(env);
            return Received::NotYet;
        }
        let result = match missing {
            Some(missing) if length != 0 => gather(socket, missing, work),
            _ => read(env, socket, missing, work),
        };
        match result {
            Read::Some(Taken::Data(data)) => return Received::Data(data.term),
            Read::Some(Taken::Invalid) => return Received::Failed(socket.input_ended(env, Some(Errno::MSGSIZE))),
            Read::Some(Taken::Missing(_)) | Read::WouldBlock => work.stepped(),
            Read::End(error) => return Received::Failed(socket.input_ended(env, error)),
        }
    }
}

/// Makes `pid` the process that waits for `length` bytes, and makes sure that they are noticed.
pub fn await_data(socket: &mut Socket, waiter: Waiter, length: usize) -> rustix::io::Result<()> {
    socket.register()?;
    socket.receiver = Some(Box::new(Receiver { waiter, length }));
    Ok(())
}

/// Takes `length` bytes off those that were read before, or a packet if that is zero.
fn take<'a>(env: Env<'a>, socket: &mut Socket, length: usize) -> Taken<'a> {
    let Some(mut input) = socket.input.take() else {
        return Taken::Missing(if length == 0 { None } else { Some(length) });
    };
    let available = input.len();
    let size = match front(socket, input.as_slice(), length) {
        Front::Packet(size) if size <= available => size,
        front => {
            socket.input = Some(input);
            return match front {
                Front::Packet(size) => Taken::Missing(Some(size - available)),
                Front::Incomplete => Taken::Missing(None),
                Front::Invalid => Taken::Invalid,
            };
        }
    };
    socket.statistics.received.count(size);
    let data = if size >= LARGE {
        let (bytes, skip, rest) = input.split(size);
        input = Box::new(rest);
        data::of_large_packet(env, &socket.options, &mut socket.in_http_headers, bytes, skip)
    } else {
        let data = data::of_packet(env, &socket.options, &mut socket.in_http_headers, &input.as_slice()[..size]);
        input.advance(size);
        data
    };
    if input.len() > 0 {
        socket.input = Some(input);
    }
    Taken::Data(data)
}

/// Where the first packet of `bytes` ends, or that of `length` bytes which somebody asked for.
fn front(socket: &mut Socket, bytes: &[u8], length: usize) -> Front {
    if length != 0 {
        return Front::Packet(length);
    }
    let options = &socket.options;
    match options.packet {
        Packet::Raw => Front::Packet(bytes.len()),
        packet => packet::front(packet, bytes, options.limits(), &mut socket.in_http_headers),
    }
}

/// One read towards a packet, of which so many bytes are `missing`, and the packet if that completes it.
fn read<'a>(env: Env<'a>, socket: &mut Socket, missing: Option<usize>, work: &mut Work) -> Read<Taken<'a>> {
    if let Some(missing) = missing
        && missing >= BULK
    {
        return gather(socket, missing, work);
    }
    let limit = socket.options.buffer as usize;
    if socket.bulk && data::is_plain(&socket.options) {
        let mut binary = OwnedBinary::new(limit.min(BULK_MAX));
        let limit = binary.len();
        return match receive_into(socket, limit, work, |fd| recv(fd, binary.as_mut_slice())) {
            Read::Some(n) => {
                socket.statistics.received.count(n);
                binary.realloc_or_copy(n);
                Read::Some(Taken::Data(data::of_binary(env, binary)))
            }
            Read::WouldBlock => Read::WouldBlock,
            Read::End(error) => Read::End(error),
        };
    }
    // Bytes of an unknown length are kept up to `buffer`, or `packet_size` where that is more, and no further.
    let kept = socket.input.as_ref().map_or(0, |input| input.len());
    let limit = match kept {
        0 => limit,
        _ if missing.is_some() => limit,
        _ => limit.max(socket.options.packet_size as usize).saturating_sub(kept),
    };
    BUFFER.with_borrow_mut(|buffer| {
        let limit = limit.clamp(1, SCRATCH);
        match receive_into(socket, limit, work, |fd| recv(fd, &mut buffer[..limit])) {
            Read::Some(n) => Read::Some(take_read(env, socket, &buffer[..n])),
            Read::WouldBlock => Read::WouldBlock,
            Read::End(error) => Read::End(error),
        }
    })
}

/// Takes a packet off `bytes` that were just read, and keeps the rest.
fn take_read<'a>(env: Env<'a>, socket: &mut Socket, bytes: &[u8]) -> Taken<'a> {
    if let Some(input) = &mut socket.input {
        input.push(bytes);
        return take(env, socket, 0);
    }
    let (taken, rest) = match front(socket, bytes, 0) {
        Front::Packet(size) if size <= bytes.len() => {
            socket.statistics.received.count(size);
            let (packet, rest) = bytes.split_at(size);
            (Taken::Data(data::of_packet(env, &socket.options, &mut socket.in_http_headers, packet)), rest)
        }
        Front::Packet(size) => (Taken::Missing(Some(size - bytes.len())), bytes),
        Front::Incomplete => (Taken::Missing(None), bytes),
        Front::Invalid => (Taken::Invalid, bytes),
    };
    if !rest.is_empty() {
        socket.input.get_or_insert_default().push(rest);
    }
    taken
}

/// One read of at most `missing` bytes, which are kept.
fn gather<'a>(socket: &mut Socket, missing: usize, work: &mut Work) -> Read<Taken<'a>> {
    let mut input = socket.input.take().unwrap_or_default();
    let read = if missing >= BULK {
        let limit = missing.min(BULK_MAX);
        input.fill(missing, |bytes| {
            receive_into(socket, limit, work, |fd| {
                let room = spare_capacity(bytes);
                rustix::net::recv(fd, room, RecvFlags::empty()).map(|(n, _)| n)
            })
        })
    } else {
        BUFFER.with_borrow_mut(|buffer| {
            let read = receive_into(socket, missing, work, |fd| recv(fd, &mut buffer[..missing]));
            if let Read::Some(n) = read {
                input.push(&buffer[..n]);
            }
            read
        })
    };
    if input.len() > 0 {
        socket.input = Some(input);
    }
    match read {
        Read::Some(_) => Read::Some(Taken::Missing(None)),
        Read::WouldBlock => Read::WouldBlock,
        Read::End(error) => Read::End(error),
    }
}

fn recv(fd: BorrowedFd, buffer: &mut [u8]) -> rustix::io::Result<usize> {
    rustix::net::recv(fd, buffer, RecvFlags::empty()).map(|(n, _)| n)
}

/// recv(2) for `limit` bytes, with what its result says about the next one.
fn receive_into(
    socket: &mut Socket,
    limit: usize,
    work: &mut Work,
    mut recv: impl FnMut(BorrowedFd) -> rustix::io::Result<usize>,
) -> Read<usize> {
    let Some(fd) = &socket.fd else {
        return Read::End(None);
    };
    loop {
        return match recv(fd.as_fd()) {
            Ok(0) => Read::End(None),
            Ok(n) => {
                match &mut work.tally {
                    Some(tally) => tally.read(n),
                    None => pollset::counters(socket.pollset).read(n),
                }
                work.moved(n);
                socket.bulk = n >= BULK;
                // A short read means drained: whatever comes later is a new edge. Only the end of input may stand
                // behind it without one, and then the event has said so.
                socket.readable = n >= limit || socket.hung_up;
                Read::Some(n)
            }
            Err(Errno::INTR) => continue,
            Err(Errno::AGAIN) => {
                socket.readable = false;
                match socket.register() {
                    Ok(()) => Read::WouldBlock,
                    Err(errno) => Read::End(Some(errno)),
                }
            }
            Err(errno) => Read::End(Some(errno)),
        };
    }
}

/// Throws away what comes for a socket that is only there until its queue is sent. Nobody will read it, and the peer may
/// take the queue only when it has sent all of its own.
pub fn discard(env: Env, socket: &mut Socket, work: &mut Work) {
    while socket.readable {
        if work.is_over() {
            return socket.enqueue(env);
        }
        let read =
            BUFFER.with_borrow_mut(|buffer| receive_into(socket, SCRATCH, work, |fd| recv(fd, &mut buffer[..SCRATCH])));
        match read {
            Read::Some(_) => {}
            Read::WouldBlock => return,
            // It sends no more, and may read still.
            Read::End(None) => socket.readable = false,
            Read::End(Some(_)) => return socket.release(env),
        }
    }
}

/// Whether a socket in this state can be read from.
pub fn is_readable(socket: &Socket) -> bool {
    socket.state == State::Connected
}

/// The result of `recv` as a term: `{ok, Data}` or `{error, Reason}`; nothing where the caller has to wait.
pub fn result<'a>(env: Env<'a>, received: Received<'a>) -> Option<Term<'a>> {
    match received {
        Received::Data(data) => Some((atoms::ok(), data).encode(env)),
        Received::Failed(reason) => Some((atoms::error(), reason).encode(env)),
        Received::NotYet => None,
    }
}
