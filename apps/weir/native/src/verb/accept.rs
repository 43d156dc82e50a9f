//! Listening sockets: from the backlog to processes in `accept`.

pub mod for_reactor;

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::Errno;
use rustix::net::SocketFlags;
use rustler::{Encoder, Env, LocalPid};

use crate::listener::accept_queue::{Missed, Taker};
use crate::listener::permit::Arrival;
use crate::listener::{Decision, LateOption, Listener};
use crate::pollset;
use crate::socket::following::Placed;
use crate::socket::table;
use crate::socket::{Acceptor, Listening, Socket, State, Waiter};
use crate::term::atoms;
use crate::term::errno;
use crate::value::admission::Address;
use crate::value::chaos;
use crate::value::counters::add;
use crate::value::handle::Handle;
use crate::value::options::Options;
use crate::value::shared::Shared;
use crate::value::work::Work;
use crate::verb::kernel_options;

/// Out of descriptors, and nothing has been accepted since. Used to report each episode once.
pub static EXHAUSTED: Shared<AtomicBool> = Shared::new(AtomicBool::new(false));

/// Accepts a connection for the calling process, onto `pollset`. `None` if the backlog is empty.
pub fn accept(env: Env, socket: &mut Socket, pollset: u16) -> Result<Option<Handle>, Errno> {
    match take(env, socket)? {
        None => Ok(None),
        Some(fd) => adopt(env, socket, fd, env.pid(), pollset).map(Some),
    }
}

/// Makes the calling process wait for a connection. Returns its operation.
pub fn await_connection(env: Env, socket: &mut Socket, pollset: u16) -> rustix::io::Result<u32> {
    socket.register()?;
    let operation = socket.next_operation();
    let waiter = Waiter { pid: env.pid(), operation };
    let listening = socket.listening.get_or_insert_default();
    // Entries of processes that were killed while they waited are removed before the list grows.
    if listening.acceptors.len() == listening.acceptors.capacity() {
        listening.acceptors.retain(|acceptor| env.is_process_alive(acceptor.waiter.pid));
    }
    listening.acceptors.push_back(Acceptor { waiter, pollset });
    Ok(operation)
}

/// Whether processes wait for connections.
pub fn somebody_waits(socket: &Socket) -> bool {
    socket.listening.as_ref().is_some_and(|listening| !listening.acceptors.is_empty())
}

/// Number of living processes that wait for a connection.
pub fn waiting(env: Env, socket: &Socket) -> usize {
    let acceptors = socket.listening.iter().flat_map(|listening| &listening.acceptors);
    acceptors.filter(|acceptor| env.is_process_alive(acceptor.waiter.pid)).count()
}

/// Gives connections to waiting processes, first come, first served.
pub fn serve(env: Env, socket: &mut Socket, work: &mut Work) {
    if let Some((listener, queue)) = socket.listening.as_ref().and_then(|listening| listening.listener.as_ref()) {
        // The reactor, or its successor, accepts connections itself.
        let Some(queue) = *queue else { return };
        let listener = Arc::clone(listener);
        return serve_listener(env, socket, &listener, queue, work);
    }
    while socket.readable.is_ready() {
        let Some(Acceptor { waiter, pollset }) = next_acceptor(env, socket) else {
            return;
        };
        if work.is_over() {
            wait_on(socket, Acceptor { waiter, pollset });
            return socket.enqueue(env);
        }
        work.visited();
        match take(env, socket) {
            Ok(Some(fd)) => {
                let result = match adopt(env, socket, fd, waiter.pid, pollset) {
                    Ok(handle) => (atoms::ok(), handle.raw()).encode(env),
                    // It has just died; the next one gets the connection.
                    Err(Errno::SRCH) => continue,
                    Err(errno) => (atoms::error(), errno::atom(env, errno)).encode(env),
                };
                socket.answer(env, waiter, result);
            }
            Ok(None) => wait_on(socket, Acceptor { waiter, pollset }),
            Err(errno) => {
                socket.answer(env, waiter, (atoms::error(), errno::atom(env, errno)));
            }
        }
    }
}

/// The first living process that waits.
fn next_acceptor(env: Env, socket: &mut Socket) -> Option<Acceptor> {
    let acceptors = &mut socket.listening.as_mut()?.acceptors;
    loop {
        let acceptor = acceptors.pop_front()?;
        if env.is_process_alive(acceptor.waiter.pid) {
            return Some(acceptor);
        }
    }
}

/// Puts a process back at the head of the waiting list.
fn wait_on(socket: &mut Socket, acceptor: Acceptor) {
    socket.listening.get_or_insert_default().acceptors.push_front(acceptor);
}

/// Accepts a connection from the backlog.
fn take(env: Env, socket: &mut Socket) -> Result<Option<OwnedFd>, Errno> {
    if let Some(orphan) = socket.listening.as_mut().and_then(|listening| listening.orphan.take()) {
        return Ok(Some(orphan));
    }
    match take_with(socket, |fd| rustix::net::accept_with(fd, ACCEPTED)) {
        Ok(accepted) => {
            if accepted.is_some() && EXHAUSTED.load(Ordering::Relaxed) {
                EXHAUSTED.store(false, Ordering::Relaxed);
            }
            Ok(accepted)
        }
        Err(errno) => {
            let exhausted = matches!(errno, Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM);
            if exhausted && !EXHAUSTED.swap(true, Ordering::Relaxed) {
                report(env, (atoms::weir_descriptors(), atoms::exhausted(), errno::atom(env, errno)));
            }
            Err(errno)
        }
    }
}

/// Flags of accepted descriptors.
const ACCEPTED: SocketFlags = SocketFlags::NONBLOCK.union(SocketFlags::CLOEXEC);

/// Accepts a connection with `accept`. After an error the connection stays in the backlog without
/// another edge, so `readable` stays set for the next attempt.
fn take_with<T>(
    socket: &mut Socket,
    accept: impl Fn(BorrowedFd) -> rustix::io::Result<T>,
) -> rustix::io::Result<Option<T>> {
    let Some(fd) = &socket.fd else {
        return Err(Errno::INVAL);
    };
    loop {
        match accept(fd.as_fd()) {
            Ok(accepted) => {
                add(&pollset::counters(socket.pollset).accepts, 1);
                return Ok(Some(accepted));
            }
            // The peer has given up while in the backlog; accept(2) says to ignore such errors.
            Err(Errno::INTR | Errno::CONNABORTED | Errno::PROTO) => {}
            Err(Errno::AGAIN) => {
                socket.readable.end();
                return Ok(None);
            }
            Err(errno) => return Err(errno),
        }
    }
}

/// Creates another listening socket of the calling process from a duplicate of the descriptor.
/// Both accept from the same backlog.
pub fn duplicate(env: Env, socket: &Socket, pollset: u16) -> rustix::io::Result<Handle> {
    let (State::Listening, Some(fd), Some(module)) = (socket.state, &socket.fd, socket.module) else {
        return Err(Errno::INVAL);
    };
    let fd = rustix::io::fcntl_dupfd_cloexec(fd, 0)?;
    let mut copy = table::allocate().ok_or(Errno::MFILE)?;
    let handle = copy.open(env, fd, State::Listening, (module, pollset, socket.options), env.pid());
    if handle.is_ok() {
        let late_options = late_options(socket).to_vec();
        copy.listening = Some(Box::new(Listening { late_options, ..Listening::default() }));
    }
    // The calling process is alive, since it calls.
    handle.map_err(|_| Errno::SRCH)
}

/// Admits connections as long as the listener allows it, and then notifies the acceptors once.
fn serve_listener(env: Env, socket: &mut Socket, listener: &Arc<Listener>, queue: usize, work: &mut Work) {
    while socket.readable.is_ready() {
        if work.is_over() {
            socket.enqueue(env);
            break;
        }
        work.visited();
        match attempt(env, socket, listener, Some(queue)) {
            Attempt::Admitted(arrival) => listener.push(env, queue, arrival),
            Attempt::Refused => {}
            Attempt::Nothing => break,
        }
    }
    listener.announce(env, queue);
}

/// Result of an attempt to admit a connection.
enum Attempt {
    Admitted(Arrival),
    /// The connection was closed, or given to another reactor; there may be more.
    Refused,
    /// There is none, or none may be admitted now. The socket is visited again when that changes.
    Nothing,
}

/// Admits the next connection if the listener allows it.
fn attempt(env: Env, socket: &mut Socket, listener: &Listener, queue: Option<usize>) -> Attempt {
    let has_place = match listener.decide(env, queue) {
        Decision::Accept => true,
        Decision::Reset => false,
        Decision::Pause => return Attempt::Nothing,
    };
    match take_for_listener(socket, listener) {
        Ok(Some((fd, address))) if has_place => {
            listener.admit(env, fd, address).map_or(Attempt::Refused, Attempt::Admitted)
        }
        Ok(Some((fd, _))) => {
            listener.overload(fd);
            Attempt::Refused
        }
        nothing => {
            listener.forgo();
            if has_place {
                listener.give_place_back(env);
            }
            if let Err(errno) = nothing {
                listener.accept_failed(env, errno);
            }
            Attempt::Nothing
        }
    }
}

/// Accepts a connection, with its address if the listener needs it.
fn take_for_listener(
    socket: &mut Socket,
    listener: &Listener,
) -> rustix::io::Result<Option<(OwnedFd, Option<Address>)>> {
    if !listener.wants_address() {
        return take_with(socket, |fd| Ok((rustix::net::accept_with(fd, ACCEPTED)?, None)));
    }
    take_with(socket, |fd| {
        let (accepted, peer) = rustix::net::acceptfrom_with(fd, ACCEPTED)?;
        let peer = peer.and_then(|peer| SocketAddr::try_from(peer).ok());
        Ok((accepted, peer.map(|peer| Address::from(peer.ip()))))
    })
}

/// Makes the oldest connection of a queue a socket of `owner`, which starts with this version of
/// the listener's options. ESRCH if that process is dead; then the connection stays in the queue.
///
/// The slot is allocated and locked before the connection leaves the queue. So closing the queue
/// and then walking the table finds every connection.
pub fn take_arrival(
    env: Env,
    listener: &Arc<Listener>,
    queue: usize,
    owner: LocalPid,
    (version, taker): (u64, Taker),
) -> Result<Result<Handle, Missed>, Errno> {
    if listener.length(queue) == 0 {
        return Ok(Err(Missed::Nothing));
    }
    let Some(mut accepted) = table::allocate() else {
        listener.discard_next(env, queue);
        return Err(Errno::MFILE);
    };
    let (arrival, template) = match listener.pop(env, queue, version, taker) {
        Ok(taken) => taken,
        Err(missed) => return Ok(Err(missed)),
    };
    chaos::between();
    let (fd, permit) = arrival.into_parts(Arc::clone(listener), owner);
    set_late_options(&fd, &template.late_options);
    let about = (template.module, listener.pollset(queue), template.options);
    match accepted.open(env, fd, State::Connected, about, owner) {
        Ok(handle) => {
            accepted.permit = Some(permit);
            if listener.distributes() {
                accepted.following.place(Placed::ByListener);
            }
            if accepted.is_active() {
                accepted.enqueue(env);
            }
            Ok(Ok(handle))
        }
        Err(fd) => {
            listener.put_back(env, queue, Arrival::from_parts(fd, permit));
            Err(Errno::SRCH)
        }
    }
}

/// Options that are set on connections of a listening socket after accept.
fn late_options(socket: &Socket) -> &[LateOption] {
    socket.listening.as_ref().map_or(&[], |listening| &listening.late_options)
}

fn set_late_options(fd: &OwnedFd, options: &[LateOption]) {
    for &(level, name, value) in options {
        // An option that the listening socket accepted does not fail here.
        let _ = kernel_options::set_int(fd.as_fd(), level, name, value);
    }
}

/// Makes an accepted descriptor a socket of `owner`. It inherits kernel options from the listening
/// socket; Weir's options are copied. ESRCH if the process is dead: the descriptor is kept for the
/// next accept.
fn adopt(env: Env, socket: &mut Socket, fd: OwnedFd, owner: LocalPid, pollset: u16) -> Result<Handle, Errno> {
    let (Some(module), Some(mut accepted)) = (socket.module, table::allocate()) else {
        return Err(Errno::MFILE);
    };
    set_late_options(&fd, late_options(socket));
    let about = (module, pollset, Options { debug: false, ..socket.options });
    match accepted.open(env, fd, State::Connected, about, owner) {
        Ok(handle) => {
            if accepted.is_active() {
                // Data is read at the next poll, after the answer to accept.
                accepted.enqueue(env);
            }
            Ok(handle)
        }
        Err(fd) => {
            socket.listening.get_or_insert_default().orphan = Some(fd);
            Err(Errno::SRCH)
        }
    }
}

fn report(env: Env, what: impl Encoder) {
    if let Some(pid) = env.whereis_pid(atoms::weir_pollsets()) {
        let _ = env.send(&pid, what);
    }
}
