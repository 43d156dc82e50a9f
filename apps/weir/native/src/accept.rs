//! Listening sockets: from the backlog to the processes in `accept`.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::Errno;
use rustix::net::SocketFlags;
use rustler::{Encoder, Env, LocalPid};

use crate::counters::add;
use crate::handle::Handle;
use crate::socket::{Acceptor, Options, Socket, State, Waiter};
use crate::work::Work;
use crate::{atoms, errno, kernel_options, pollset, table};

/// Whether descriptors have run out and nothing has been accepted since: the episode is reported once.
static EXHAUSTED: AtomicBool = AtomicBool::new(false);

/// Listens; see listen(2). A listening socket may be told another backlog.
pub fn listen(socket: &mut Socket, backlog: i32) -> rustix::io::Result<()> {
    let Socket { fd: Some(fd), state: State::Open | State::Listening, .. } = socket else {
        return Err(Errno::INVAL);
    };
    rustix::net::listen(fd.as_fd(), backlog)?;
    // The one option that the kernel does not hand on to connections, and gen_tcp does.
    if let Some(priority) = kernel_options::priority(fd.as_fd()).filter(|&priority| priority != 0) {
        socket.listener.get_or_insert_default().set_late(libc::SOL_SOCKET, libc::SO_PRIORITY, priority);
    }
    socket.state = State::Listening;
    Ok(())
}

/// Accepts a connection for the calling process, onto `pollset`. Nothing if the backlog is empty.
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
    let listener = socket.listener.get_or_insert_default();
    // Processes that were killed while they waited leave their entry; it goes when the list would grow over it.
    if listener.acceptors.len() == listener.acceptors.capacity() {
        listener.acceptors.retain(|acceptor| env.is_process_alive(acceptor.waiter.pid));
    }
    listener.acceptors.push_back(Acceptor { waiter, pollset });
    Ok(operation)
}

/// Whether processes wait for a connection.
pub fn somebody_waits(socket: &Socket) -> bool {
    socket.listener.as_ref().is_some_and(|listener| !listener.acceptors.is_empty())
}

/// How many living processes wait for a connection.
pub fn waiting(env: Env, socket: &Socket) -> usize {
    let acceptors = socket.listener.iter().flat_map(|listener| &listener.acceptors);
    acceptors.filter(|acceptor| env.is_process_alive(acceptor.waiter.pid)).count()
}

/// Gives waiting connections to waiting processes, first come, first served.
pub fn serve(env: Env, socket: &mut Socket, work: &mut Work) {
    while socket.readable {
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
                    // It died just now: the next one gets the connection.
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

/// The first process that waits and is alive.
fn next_acceptor(env: Env, socket: &mut Socket) -> Option<Acceptor> {
    let acceptors = &mut socket.listener.as_mut()?.acceptors;
    loop {
        let acceptor = acceptors.pop_front()?;
        if env.is_process_alive(acceptor.waiter.pid) {
            return Some(acceptor);
        }
    }
}

/// Puts a process back to the head of those that wait.
fn wait_on(socket: &mut Socket, acceptor: Acceptor) {
    socket.listener.get_or_insert_default().acceptors.push_front(acceptor);
}

/// Takes a connection off the backlog.
fn take(env: Env, socket: &mut Socket) -> Result<Option<OwnedFd>, Errno> {
    if let Some(orphan) = socket.listener.as_mut().and_then(|listener| listener.orphan.take()) {
        return Ok(Some(orphan));
    }
    let Some(fd) = &socket.fd else {
        return Err(Errno::INVAL);
    };
    loop {
        match rustix::net::accept_with(fd.as_fd(), SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
            Ok(accepted) => {
                add(&pollset::counters(socket.pollset).accepts, 1);
                if EXHAUSTED.load(Ordering::Relaxed) {
                    EXHAUSTED.store(false, Ordering::Relaxed);
                }
                return Ok(Some(accepted));
            }
            // The peer gave up while it waited in the backlog; see accept(2) on passing over such errors.
            Err(Errno::INTR | Errno::CONNABORTED | Errno::PROTO) => {}
            Err(Errno::AGAIN) => {
                socket.readable = false;
                return Ok(None);
            }
            Err(errno) => {
                // The connection stays in the backlog without another edge: `readable` stays, and the next accept tries.
                let exhausted = matches!(errno, Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM);
                if exhausted && !EXHAUSTED.swap(true, Ordering::Relaxed) {
                    report(env, (atoms::weir_descriptors(), atoms::exhausted(), errno::atom(env, errno)));
                }
                return Err(errno);
            }
        }
    }
}

/// Takes a connection off the backlog for the reactor that calls, onto its pollset. Nothing if there is none, or the
/// sockets are another reactor's.
pub fn take_for_reactor(env: Env, socket: &mut Socket) -> Result<Option<Handle>, Errno> {
    let owner = env.pid();
    if socket.listener.as_ref().and_then(|listener| listener.reactor) != Some(owner) {
        socket.readable = false;
        return Ok(None);
    }
    let Some(fd) = take(env, socket)? else {
        return Ok(None);
    };
    let (Some(module), Some(mut accepted)) = (socket.module, table::allocate()) else {
        return Err(Errno::MFILE);
    };
    set_late_options(socket, &fd);
    let about = (module, socket.pollset, Options { debug: false, ..socket.options });
    let handle = accepted.open_in_reactor(fd, about, owner);
    // Its data is read at the next poll.
    accepted.enqueue(env);
    Ok(Some(handle))
}

/// Sets the options that the kernel does not hand on.
fn set_late_options(socket: &Socket, fd: &OwnedFd) {
    for &(level, name, value) in socket.listener.iter().flat_map(|listener| &listener.late_options) {
        // What the listener took, a connection takes.
        let _ = kernel_options::set_int(fd.as_fd(), level, name, value);
    }
}

/// Makes an accepted descriptor a socket of `owner`. Kernel options came with it from the listener, ours are copied.
/// ESRCH if the process is dead: the descriptor stays with the listener for the next.
fn adopt(env: Env, socket: &mut Socket, fd: OwnedFd, owner: LocalPid, pollset: u16) -> Result<Handle, Errno> {
    let (Some(module), Some(mut accepted)) = (socket.module, table::allocate()) else {
        return Err(Errno::MFILE);
    };
    set_late_options(socket, &fd);
    let about = (module, pollset, Options { debug: false, ..socket.options });
    match accepted.open(env, fd, State::Connected, about, owner) {
        Ok(handle) => {
            if accepted.is_active() {
                // Its data is read at the next poll, after the answer to accept.
                accepted.enqueue(env);
            }
            Ok(handle)
        }
        Err(fd) => {
            socket.listener.get_or_insert_default().orphan = Some(fd);
            Err(Errno::SRCH)
        }
    }
}

fn report(env: Env, what: impl Encoder) {
    if let Some(pid) = env.whereis_pid(atoms::weir_pollsets()) {
        let _ = env.send(&pid, what);
    }
}
