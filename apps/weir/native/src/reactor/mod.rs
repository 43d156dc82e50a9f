//! Sockets of reactors: their events are returned in batches to the process that polls their
//! pollset.
//!
//! A reactor is one process with many connections and a private pollset. One call takes the writes
//! for the last batch and returns the events of the next. What other owners get as messages (data,
//! the end, room for output) are events here. The end of a socket is recorded where it is found
//! (`Socket::end`), and becomes an event here.
//!
//! May use the verbs and what is below them, but no relays. The call that takes a batch is in
//! `poll`.

use rustix::io::Errno;
use rustler::sys::{self, ErlNifTerm};
use rustler::{Atom, Binary, Encoder, Env, Error, NifResult, Term};

use crate::pollset;
use crate::socket::file::FileReference;
use crate::socket::table;
use crate::socket::{Ended, Socket, State};
use crate::term::atoms;
use crate::term::errno;
use crate::term::resource::ResourceArc;
use crate::value::handle::Handle;
use crate::value::panics;
use crate::value::work::Work;
use crate::verb::accept::for_reactor::{self, Taken};
use crate::verb::connect;
use crate::verb::input;
use crate::verb::input::Next;
use crate::verb::output;
use crate::verb::output::queued_file;
use crate::verb::output::queued_file::Piece;
use crate::verb::output::{Flat, Sent};

/// Number of events in a batch. Between the reads of a batch and the writes of its replies, the
/// kernel's data of its sockets should stay in the processor's caches.
pub const BATCH: usize = 64;

/// Maximum packets from a socket before the next one gets its turn.
const PACKETS: usize = 16;

/// Events for the reactor.
pub struct Batch<'a> {
    env: Env<'a>,
    events: Vec<ErlNifTerm>,
    /// Sockets with data in this batch. Their replies come with the next call.
    unanswered: Vec<Handle>,
}

impl<'a> Batch<'a> {
    /// An empty batch, which owns no memory.
    pub fn new(env: Env<'a>) -> Batch<'a> {
        Batch { env, events: Vec::new(), unanswered: Vec::new() }
    }

    fn is_full(&self) -> bool {
        self.events.len() >= 2 * BATCH
    }

    /// Adds `[Handle | Data]`.
    fn data(&mut self, handle: Handle, data: Term<'a>) {
        if self.unanswered.last() != Some(&handle) {
            if self.unanswered.is_empty() {
                self.unanswered.reserve(BATCH);
            }
            self.unanswered.push(handle);
        }
        let handle = handle.raw().encode(self.env);
        // SAFETY: both terms are of this environment.
        self.events.push(unsafe { sys::enif_make_list_cell(self.env.as_c_arg(), handle.as_c_arg(), data.as_c_arg()) });
    }

    /// Adds `{What, Handle}`.
    fn news(&mut self, what: Atom, handle: Handle) {
        self.events.push((what, handle.raw()).encode(self.env).as_c_arg());
    }

    /// Adds `{What, Handle, Reason}`.
    fn end(&mut self, what: Atom, handle: Handle, reason: Atom) {
        self.events.push((what, handle.raw(), reason).encode(self.env).as_c_arg());
    }

    /// Adds `{unsent, Handle, Reason, IoData}`.
    fn unsent(&mut self, handle: Handle, reason: Atom, data: Term<'a>) {
        self.events.push((atoms::unsent(), handle.raw(), reason, data).encode(self.env).as_c_arg());
    }

    /// The events as a list, in order.
    pub fn into_term(self) -> Term<'a> {
        let count = self.events.len() as u32;
        // SAFETY: the terms are of this environment, and `count` is their number; a batch is far
        // below 2^32.
        unsafe {
            let list = sys::enif_make_list_from_array(self.env.as_c_arg(), self.events.as_ptr(), count);
            Term::new(self.env, list)
        }
    }
}

/// Makes the writes for a batch: a list of `[Handle | IoData]`, and of `Handle` for a close, in
/// reverse order. When the time of the call is used up, the rest is queued. Writes to closed
/// sockets are ignored.
pub fn write_all<'a>(env: Env<'a>, writes: Term<'a>, work: &mut Work, batch: &mut Batch<'a>) -> NifResult<()> {
    let mut list = Vec::with_capacity(BATCH);
    let mut rest = writes;
    while let Ok((write, tail)) = rest.list_get_cell() {
        let (handle, data) = match write.list_get_cell() {
            Ok((handle, data)) => (handle, Some(data)),
            Err(_) => (write, None),
        };
        list.push((handle.decode()?, data));
        rest = tail;
    }
    panics::survive(|| {
        while let Some((handle, data)) = list.pop() {
            if let Some(&(next, _)) = list.len().checked_sub(table::AHEAD).and_then(|at| list.get(at)) {
                table::prefetch(next);
            }
            let Some(mut socket) = table::find(handle).filter(|socket| !socket.broken) else { continue };
            work.visited();
            let Some(data) = data else {
                socket.leave(env);
                continue;
            };
            if let Err(reason) = self::write(env, &mut socket, data, work) {
                // Nothing may be sent after a gap in the stream.
                batch.unsent(socket.handle(), reason, data);
                socket.leave(env);
            }
        }
    });
    Ok(())
}

/// Sends the data that a callback has returned. Returns an error only if the data cannot be sent;
/// errors of the connection become events.
pub fn write(env: Env, socket: &mut Socket, data: Term, work: &mut Work) -> Result<(), Atom> {
    let sent = if let Ok(binary) = Binary::from_term(data) {
        output::send(env, socket, &[binary], work)
    } else if let Some(parts) = binaries(data) {
        output::send(env, socket, &parts, work)
    } else if let Ok(flat) = Binary::from_iolist(data) {
        output::send(env, socket, &[Flat(flat.as_slice())], work)
    } else {
        let pieces = pieces(data).map_err(|_| atoms::badarg())?;
        queued_file::send(env, socket, pieces, work)
    };
    match sent {
        Sent::Failed(reason) if reason == atoms::emsgsize() || reason == atoms::einval() => Err(reason),
        _ => Ok(()),
    }
}

/// Decodes a list of bytes and parts of files.
fn pieces<'a>(term: Term<'a>) -> NifResult<Vec<Piece<Binary<'a>>>> {
    let mut pieces = Vec::new();
    let mut rest = term;
    while let Ok((piece, tail)) = rest.list_get_cell() {
        pieces.push(match piece.decode::<(Atom, ResourceArc<FileReference>, u64, u64)>() {
            Ok((tag, file, offset, length)) if tag == atoms::sendfile() && is_part(offset, length) => {
                Piece::File { file: file.0.clone(), offset, length }
            }
            Ok(_) => return Err(Error::BadArg),
            Err(_) => Piece::Bytes(Binary::from_term(piece).or_else(|_| Binary::from_iolist(piece))?),
        });
        rest = tail;
    }
    if rest.is_empty_list() { Ok(pieces) } else { Err(Error::BadArg) }
}

/// Offsets are signed in the kernel, and lengths are added up in a queue.
fn is_part(offset: u64, length: u64) -> bool {
    const MOST: u64 = i64::MAX as u64 / 2;
    offset <= MOST && length <= MOST
}

/// Decodes a list of binaries that one write can take; `None` for anything else.
fn binaries(term: Term) -> Option<Vec<Binary>> {
    let mut parts = Vec::new();
    let mut rest = term;
    while let Ok((part, tail)) = rest.list_get_cell() {
        if parts.len() == output::SLICES {
            return None;
        }
        parts.push(Binary::from_term(part).ok()?);
        rest = tail;
    }
    rest.is_empty_list().then_some(parts)
}

/// Serves a ready socket of a reactor.
pub fn serve<'a>(env: Env<'a>, socket: &mut Socket, work: &mut Work, batch: &mut Batch<'a>) {
    if batch.is_full() {
        return socket.enqueue(env);
    }
    if std::mem::take(&mut socket.unannounced) {
        batch.news(atoms::accepted(), socket.handle());
    }
    if socket.broken {
        socket.ended = Ended::Failed(Errno::CONNABORTED);
        return close(env, socket, batch);
    }
    // Before data that the peer sent in reply to it.
    if std::mem::take(&mut socket.served) {
        batch.news(atoms::served(), socket.handle());
    }
    // A connecting socket that was closed from outside does not wait for its peer.
    if socket.state == State::Connecting && socket.ended == Ended::Not && !finish_connect(env, socket, batch) {
        return;
    }
    if socket.state == State::Connected && socket.output.is_some() {
        output::flush(env, socket, work);
    }
    if socket.ended != Ended::Not {
        return end(env, socket, socket.ended, batch);
    }
    if socket.state != State::Connected {
        return;
    }
    tell_room(env, socket, batch);
    if !socket.throttled {
        read(env, socket, work, batch);
    }
}

/// Reads up to [`PACKETS`] packets.
fn read<'a>(env: Env<'a>, socket: &mut Socket, work: &mut Work, batch: &mut Batch<'a>) {
    let handle = socket.handle();
    for _ in 0..PACKETS {
        if !socket.is_active() {
            return;
        }
        match input::next(env, socket, work) {
            Next::Data(data) => {
                socket.options.active = socket.options.active.delivered().0;
                batch.data(handle, data);
                if !socket.readable.is_ready() && socket.input.is_none() {
                    // It is registered by a visit after the reply, unless the reply has closed it.
                    // So a connection with a single request is never added to epoll.
                    if !socket.registered {
                        socket.enqueue(env);
                    }
                    return;
                }
            }
            Next::Nothing => return,
            Next::End(error) => {
                return end(env, socket, error.map_or(Ended::Closed, Ended::Failed), batch);
            }
        }
        if work.is_over() {
            break;
        }
    }
    socket.enqueue(env);
}

/// Reports that the kernel takes output: to the reactor if it asked or if the socket was
/// throttled, and to other processes that asked.
fn tell_room(env: Env, socket: &mut Socket, batch: &mut Batch) {
    let queued = socket.output.as_ref().map_or(0, |output| output.queue.len());
    let mut told = false;
    if socket.throttled {
        socket.throttled = queued > socket.options.low_watermark as usize;
        told = !socket.throttled;
    } else if queued > socket.options.high_watermark as usize {
        socket.throttled = true;
    }
    if socket.writability.is_some() && socket.writable && queued == 0 {
        if socket.writability.as_deref() == socket.owner.as_ref() {
            socket.writability = None;
            told = true;
        } else {
            socket.tell_writable(env);
        }
    }
    if told {
        batch.news(atoms::writable(), socket.handle());
    }
}

/// Ends a connection. If this batch has data of the socket, the replies go out first; the ready
/// list and the kernel may both have named it in this call.
fn end(env: Env, socket: &mut Socket, ended: Ended, batch: &mut Batch) {
    if batch.unanswered.contains(&socket.handle()) {
        return socket.end(env, ended);
    }
    socket.ended = ended;
    close(env, socket, batch);
}

/// Reports how the connection ended, and closes the socket. Queued output is still sent, unless
/// the connection has failed.
fn close(env: Env, socket: &mut Socket, batch: &mut Batch) {
    let reason = match socket.ended {
        Ended::Not | Ended::Closed => atoms::closed(),
        // EPIPE is a reset that was found by a write.
        Ended::Failed(Errno::PIPE) => atoms::econnreset(),
        Ended::Failed(errno) => errno::atom(env, errno),
        Ended::SendQueueFull => atoms::send_queue_full(),
    };
    batch.end(atoms::closed(), socket.handle(), reason);
    match socket.ended {
        Ended::Closed => socket.leave(env),
        Ended::Not | Ended::Failed(_) | Ended::SendQueueFull => socket.release(env),
    }
}

/// Handles the result of a connection attempt. True if the socket is connected.
fn finish_connect(env: Env, socket: &mut Socket, batch: &mut Batch) -> bool {
    match connect::outcome(socket) {
        None => false,
        Some(Ok(())) => {
            batch.news(atoms::connected(), socket.handle());
            true
        }
        Some(Err(errno)) => {
            batch.end(atoms::refused(), socket.handle(), errno::atom(env, errno));
            socket.release(env);
            false
        }
    }
}

/// Accepts connections from a listening socket of this reactor.
pub fn accept_all(env: Env, listening: &mut Socket, work: &mut Work, batch: &mut Batch) {
    while listening.readable.is_ready() {
        if work.is_over() || batch.is_full() {
            return listening.enqueue(env);
        }
        work.visited();
        match for_reactor::take_connection(env, listening) {
            Ok(Taken::Connection(handle)) => batch.news(atoms::accepted(), handle),
            Ok(Taken::NotHere) => {}
            Ok(Taken::Nothing) => return,
            Err(errno) => {
                // The connection stays in the backlog, without another edge. The reactor tries
                // again after a while.
                return batch.end(atoms::exhausted(), listening.handle(), errno::atom(env, errno));
            }
        }
    }
}

/// Starts to connect a socket that has joined the calling reactor. An event reports the result.
pub fn connect(env: Env, socket: &mut Socket, address: &rustix::net::SocketAddrAny) -> rustix::io::Result<()> {
    if connect::begin(socket, address)? {
        socket.state = State::Connecting;
        socket.writable = true;
        socket.enqueue(env);
    }
    Ok(())
}

/// Closes or moves what a dead reactor has left on its pollset, in chunk `piece` of the table.
/// Returns whether the chunk is finished; `None` past the last chunk.
pub fn reap(env: Env, index: u16, piece: usize) -> Option<bool> {
    let mut budget = REAPED;
    for handle in table::handles(piece)? {
        let Some(mut socket) = table::find(handle) else { continue };
        if socket.pollset != index {
            continue;
        }
        if budget == 0 {
            return Some(false);
        }
        budget -= 1;
        if socket.reactor {
            socket.leave(env);
        } else {
            if let Some(listening) = &mut socket.listening {
                listening.reactor = None;
            }
            if socket.move_to(env, pollset::online::pollset(pollset::private::home(index))).is_err() {
                socket.release(env);
            }
        }
    }
    Some(true)
}

/// Maximum sockets per call, at some microseconds each.
const REAPED: usize = 64;
