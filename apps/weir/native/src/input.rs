//! From the kernel to the owner: reading and delivering.

use std::cell::RefCell;
use std::os::fd::AsFd;

use rustix::io::Errno;
use rustix::net::RecvFlags;
use rustler::{Encoder, Env, NewBinary, OwnedBinary, Resource, ResourceArc, Term, sys};

use crate::counters::add;
use crate::socket::{Options, Reason, Receiver, Socket, State, Waiter};
use crate::work::Work;
use crate::{atoms, message, pollset};

/// What a read goes into before its size is known. One for each thread: a visit is over before the next begins.
const SCRATCH: usize = 64 * 1024;

/// From this size on a read is followed by one straight into a binary, which saves a copy.
const BULK: usize = 16 * 1024;

/// The largest of those, however large `buffer` is: one read is one visit's work at most.
const BULK_MAX: usize = 256 * 1024;

/// Gathered data from this size on becomes a binary as it is: copying 64 MiB would take far longer than a call may.
const LARGE: usize = 256 * 1024;

/// The bytes of such a binary.
struct Bytes(Vec<u8>);

#[cfg_attr(not(test), rustler::resource_impl)]
impl Resource for Bytes {}

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

/// What one read of the kernel gave.
enum Read<T> {
    Some(T),
    WouldBlock,
    /// End of input, or an error.
    End(Option<Errno>),
}

/// Takes what is ready to whoever asked for it: the process in `recv` or the owner of the active socket.
pub fn serve(env: Env, socket: &mut Socket, work: &mut Work) {
    if let Some(receiver) = socket.receiver.take() {
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
                if !message::answer(env, handle, receiver.waiter, (atoms::ok(), data)) {
                    // The process is dead, and its data is for the next.
                    put_back(socket, data);
                }
            }
        }
    }
    while socket.is_active() && !socket.read_closed {
        if work.is_over() {
            return socket.enqueue(env);
        }
        if let Some(data) = take_buffered(env, socket, 0) {
            message::data(env, socket, data);
            continue;
        }
        if !socket.readable {
            if let Err(errno) = socket.register() {
                socket.input_ended(env, Some(errno));
            }
            return;
        }
        match read(env, socket, work) {
            Read::Some(data) => message::data(env, socket, data),
            Read::WouldBlock => return,
            Read::End(error) => {
                socket.input_ended(env, error);
                return;
            }
        }
    }
}

/// Receives `length` bytes, or any if that is zero. Data that is there but not enough stays for the next attempt.
pub fn receive<'a>(env: Env<'a>, socket: &mut Socket, length: usize, work: &mut Work) -> Received<'a> {
    loop {
        if let Some(data) = take_buffered(env, socket, length) {
            return Received::Data(data);
        }
        if !socket.readable {
            return Received::NotYet;
        }
        if work.is_over() {
            socket.enqueue(env);
            return Received::NotYet;
        }
        let ended = if length == 0 {
            match read(env, socket, work) {
                Read::Some(data) => return Received::Data(data),
                Read::WouldBlock => continue,
                Read::End(error) => error,
            }
        } else {
            match gather(socket, length, work) {
                Read::Some(()) | Read::WouldBlock => continue,
                Read::End(error) => error,
            }
        };
        return Received::Failed(socket.input_ended(env, ended));
    }
}

/// Makes `pid` the process that waits for `length` bytes, and makes sure that they are noticed.
pub fn await_data(socket: &mut Socket, waiter: Waiter, length: usize) -> rustix::io::Result<()> {
    socket.register()?;
    socket.receiver = Some(Box::new(Receiver { waiter, length }));
    Ok(())
}

/// Bytes that were read before, if there are enough; `length` zero takes what there is, up to `buffer`.
fn take_buffered<'a>(env: Env<'a>, socket: &mut Socket, length: usize) -> Option<Term<'a>> {
    let input = socket.input.as_mut()?;
    let available = input.len();
    let size = match length {
        0 => available.min(socket.options.buffer as usize),
        _ if available < length => return None,
        _ => length,
    };
    if size == available && size >= LARGE && !socket.options.list {
        let bytes = socket.input.take()?.into_bytes();
        return Some(ResourceArc::new(Bytes(bytes)).make_binary(env, |bytes| &bytes.0).to_term(env));
    }
    let term = make_data(env, &socket.options, &input.as_slice()[..size]);
    input.advance(size);
    if input.len() == 0 {
        socket.input = None;
    }
    Some(term)
}

/// One read, delivered as it is.
fn read<'a>(env: Env<'a>, socket: &mut Socket, work: &mut Work) -> Read<Term<'a>> {
    let limit = socket.options.buffer.max(1) as usize;
    if socket.bulk && !socket.options.list {
        let mut binary = OwnedBinary::new(limit.min(BULK_MAX));
        return match receive_into(socket, binary.as_mut_slice(), work) {
            Read::Some(n) => {
                binary.realloc_or_copy(n);
                Read::Some(binary.release(env).to_term(env))
            }
            Read::WouldBlock => Read::WouldBlock,
            Read::End(error) => Read::End(error),
        };
    }
    BUFFER.with_borrow_mut(|buffer| {
        let limit = limit.min(SCRATCH);
        match receive_into(socket, &mut buffer[..limit], work) {
            Read::Some(n) => Read::Some(make_data(env, &socket.options, &buffer[..n])),
            Read::WouldBlock => Read::WouldBlock,
            Read::End(error) => Read::End(error),
        }
    })
}

/// One read towards `length` bytes that somebody waits for.
fn gather(socket: &mut Socket, length: usize, work: &mut Work) -> Read<()> {
    BUFFER.with_borrow_mut(|buffer| {
        let missing = length - socket.input.as_ref().map_or(0, |input| input.len());
        let limit = missing.min(SCRATCH);
        match receive_into(socket, &mut buffer[..limit], work) {
            Read::Some(n) => {
                socket.input.get_or_insert_default().push(&buffer[..n]);
                Read::Some(())
            }
            Read::WouldBlock => Read::WouldBlock,
            Read::End(error) => Read::End(error),
        }
    })
}

/// recv(2), with what its result says about the next one.
fn receive_into(socket: &mut Socket, buffer: &mut [u8], work: &mut Work) -> Read<usize> {
    let Some(fd) = &socket.fd else {
        return Read::End(None);
    };
    let limit = buffer.len();
    loop {
        return match rustix::net::recv(fd.as_fd(), &mut *buffer, RecvFlags::empty()) {
            Ok((0, _)) => Read::End(None),
            Ok((n, _)) => {
                let counters = pollset::counters(socket.pollset);
                add(&counters.reads, 1);
                add(&counters.read_bytes, n as u64);
                socket.statistics.received.count(n);
                work.moved(n);
                socket.bulk = n >= BULK;
                // A short read means drained: whatever comes later is a new edge. Only the end of input may stand
                // behind it without one, and then the event has said so.
                socket.readable = n == limit || socket.hung_up;
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

/// Data as its owner wants it: a binary or a list of bytes.
fn make_data<'a>(env: Env<'a>, options: &Options, bytes: &[u8]) -> Term<'a> {
    if options.list {
        let encoding = sys::ErlNifCharEncoding::ERL_NIF_LATIN1;
        // SAFETY: the bytes are read and copied, and the term belongs to the environment it was made in.
        return unsafe {
            let list = sys::enif_make_string_len(env.as_c_arg(), bytes.as_ptr().cast(), bytes.len(), encoding);
            Term::new(env, list)
        };
    }
    let mut binary = NewBinary::new(env, bytes.len());
    binary.as_mut_slice().copy_from_slice(bytes);
    binary.into()
}

/// Puts delivered data back, in front of what came later.
fn put_back(socket: &mut Socket, data: Term) {
    let Ok(bytes) = rustler::Binary::from_iolist(data) else {
        return;
    };
    socket.input.get_or_insert_default().unread(bytes.as_slice());
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
