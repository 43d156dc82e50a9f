//! Reading from the kernel, and splitting into packets.

use std::os::fd::{AsFd, BorrowedFd};

use rustix::buffer::spare_capacity;
use rustix::io::Errno;
use rustix::net::RecvFlags;
use rustler::{Env, OwnedBinary};

use crate::kernel::scratch::{BUFFER, SCRATCH};
use crate::pollset;
use crate::socket::Socket;
use crate::term::data::{self, Data, LARGE};
use crate::value::packet::{self, Front, Packet};
use crate::value::work::Work;

/// A read of this size is followed by one straight into a binary, without a copy. So is the rest
/// of a packet if at least this much is missing.
const BULK: usize = 16 * 1024;

/// Maximum size of such a read, however large `buffer` is, which bounds the work of a visit.
const BULK_MAX: usize = 256 * 1024;

/// Result of an attempt to take a packet.
pub enum Framed<'a> {
    Data(Data<'a>),
    /// The packet is incomplete; this many bytes are missing, if known.
    Missing(Option<usize>),
    /// Not a packet, or too long.
    Invalid,
}

/// Result of one read.
pub enum Read<T> {
    Some(T),
    WouldBlock,
    /// End of input, or an error.
    End(Option<Errno>),
}

/// Takes `length` bytes of those read before, or a packet if `length` is zero.
pub fn take<'a>(env: Env<'a>, socket: &mut Socket, length: usize) -> Framed<'a> {
    let Some(mut input) = socket.input.take() else {
        return Framed::Missing(if length == 0 { None } else { Some(length) });
    };
    let available = input.len();
    let size = match front(socket, input.as_slice(), length) {
        Front::Packet(size) if size <= available => size,
        front => {
            socket.input = Some(input);
            return match front {
                Front::Packet(size) => Framed::Missing(Some(size - available)),
                Front::Incomplete => Framed::Missing(None),
                Front::Invalid => Framed::Invalid,
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
    Framed::Data(data)
}

/// The end of the first packet in `bytes`, or of `length` requested bytes.
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

/// Reads once, for a packet that lacks `missing` bytes. Returns the packet if it is complete.
pub fn read<'a>(env: Env<'a>, socket: &mut Socket, missing: Option<usize>, work: &mut Work) -> Read<Framed<'a>> {
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
                Read::Some(Framed::Data(data::of_binary(env, binary)))
            }
            Read::WouldBlock => Read::WouldBlock,
            Read::End(error) => Read::End(error),
        };
    }
    // While the length is unknown, at most `buffer` bytes are kept, or `packet_size` if that is
    // more.
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

/// Takes a packet from `bytes` that were just read, and keeps the rest.
fn take_read<'a>(env: Env<'a>, socket: &mut Socket, bytes: &[u8]) -> Framed<'a> {
    if let Some(input) = &mut socket.input {
        input.push(bytes);
        return take(env, socket, 0);
    }
    let (taken, rest) = match front(socket, bytes, 0) {
        Front::Packet(size) if size <= bytes.len() => {
            socket.statistics.received.count(size);
            let (packet, rest) = bytes.split_at(size);
            (Framed::Data(data::of_packet(env, &socket.options, &mut socket.in_http_headers, packet)), rest)
        }
        Front::Packet(size) => (Framed::Missing(Some(size - bytes.len())), bytes),
        Front::Incomplete => (Framed::Missing(None), bytes),
        Front::Invalid => (Framed::Invalid, bytes),
    };
    if !rest.is_empty() {
        socket.input.get_or_insert_default().push(rest);
    }
    taken
}

/// Reads up to `missing` bytes once, and keeps them.
pub fn gather<'a>(socket: &mut Socket, missing: usize, work: &mut Work) -> Read<Framed<'a>> {
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
        Read::Some(_) => Read::Some(Framed::Missing(None)),
        Read::WouldBlock => Read::WouldBlock,
        Read::End(error) => Read::End(error),
    }
}

fn recv(fd: BorrowedFd, buffer: &mut [u8]) -> rustix::io::Result<usize> {
    rustix::net::recv(fd, buffer, RecvFlags::empty()).map(|(n, _)| n)
}

/// Calls recv(2) for `limit` bytes, and notes whether another read may return more.
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
                    None => pollset::counters_near(socket.pollset).read(n),
                }
                work.moved(n);
                socket.was_asked();
                socket.bulk = n >= BULK;
                socket.readable.has_read(n, limit);
                Read::Some(n)
            }
            Err(Errno::INTR) => continue,
            Err(Errno::AGAIN) => {
                socket.readable.end();
                match socket.register() {
                    Ok(()) => Read::WouldBlock,
                    Err(errno) => Read::End(Some(errno)),
                }
            }
            Err(errno) => Read::End(Some(errno)),
        };
    }
}

/// Discards input of a lingering socket. Nothing reads it any more, and the peer may read the
/// queue only after it has sent all its data.
pub fn discard(env: Env, socket: &mut Socket, work: &mut Work) {
    while socket.readable.is_ready() {
        if work.is_over() {
            return socket.enqueue(env);
        }
        let read =
            BUFFER.with_borrow_mut(|buffer| receive_into(socket, SCRATCH, work, |fd| recv(fd, &mut buffer[..SCRATCH])));
        match read {
            Read::Some(_) => {}
            Read::WouldBlock => return,
            // It sends no more, but may still read.
            Read::End(None) => socket.readable.end(),
            Read::End(Some(_)) => return socket.release(env),
        }
    }
}
