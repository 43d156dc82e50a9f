//! Listening sockets: from the backlog to the processes in `accept`.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::Errno;
use rustix::net::SocketFlags;
use rustler::{Encoder, Env, LocalPid};

use crate::counters::add;
use crate::handle::Handle;
use crate::socket::{Acceptor, Socket, State, Waiter};
use crate::work::Work;
use crate::{atoms, errno, pollset, sockopt, table};

/// Whether descriptors have run out and nothing has been accepted since: the episode is reported once.
static EXHAUSTED: AtomicBool = AtomicBool::new(false);

/// Accepts a connection for the calling process, onto `pollset`. Nothing if the backlog is empty.
pub fn accept(env: Env, listener: &mut Socket, pollset: u16) -> Result<Option<Handle>, Errno> {
    match take(env, listener)? {
        None => Ok(None),
        Some(fd) => adopt(env, listener, fd, env.pid(), pollset).map(Some),
    }
}

/// Makes the calling process wait for a connection. Returns its operation.
pub fn await_connection(env: Env, listener: &mut Socket, pollset: u16) -> rustix::io::Result<u32> {
    listener.register()?;
    let operation = listener.next_operation();
    let waiter = Waiter { pid: env.pid(), operation };
    // Processes that were killed while they waited leave their entry; it goes when the list would grow over it.
    if listener.acceptors.len() == listener.acceptors.capacity() {
        listener.acceptors.retain(|acceptor| env.is_process_alive(acceptor.waiter.pid));
    }
    listener.acceptors.push(Acceptor { waiter, pollset });
    Ok(operation)
}

/// Gives waiting connections to waiting processes.
pub fn serve(env: Env, listener: &mut Socket, work: &mut Work) {
    while listener.readable && !listener.acceptors.is_empty() {
        if work.is_over() {
            return listener.enqueue(env);
        }
        work.visited();
        // First come, first served. Processes that died while they waited are passed over.
        let Acceptor { waiter, pollset } = listener.acceptors.remove(0);
        if !env.is_process_alive(waiter.pid) {
            continue;
        }
        match take(env, listener) {
            Ok(Some(fd)) => {
                let result = match adopt(env, listener, fd, waiter.pid, pollset) {
                    Ok(handle) => (atoms::ok(), handle.raw()).encode(env),
                    // It died just now: the next one gets the connection.
                    Err(Errno::SRCH) => continue,
                    Err(errno) => (atoms::error(), errno::atom(env, errno)).encode(env),
                };
                listener.answer(env, waiter, result);
            }
            Ok(None) => listener.acceptors.insert(0, Acceptor { waiter, pollset }),
            Err(errno) => {
                listener.answer(env, waiter, (atoms::error(), errno::atom(env, errno)));
            }
        }
    }
}

/// Takes a connection off the backlog.
fn take(env: Env, listener: &mut Socket) -> Result<Option<OwnedFd>, Errno> {
    if let Some(orphan) = listener.orphan.take() {
        return Ok(Some(orphan));
    }
    let Some(fd) = &listener.fd else {
        return Err(Errno::INVAL);
    };
    loop {
        match rustix::net::accept_with(fd.as_fd(), SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
            Ok(accepted) => {
                add(&pollset::counters(listener.pollset).accepts, 1);
                if EXHAUSTED.load(Ordering::Relaxed) && EXHAUSTED.swap(false, Ordering::Relaxed) {
                    report(env, (atoms::weir_descriptors(), atoms::recovered()));
                }
                return Ok(Some(accepted));
            }
            // The peer gave up while it waited in the backlog; see accept(2) on passing over such errors.
            Err(Errno::INTR | Errno::CONNABORTED | Errno::PROTO) => {}
            Err(Errno::AGAIN) => {
                listener.readable = false;
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

/// Makes an accepted descriptor a socket of `owner`. Kernel options came with it from the listener, ours are copied.
/// ESRCH if the process is dead: the descriptor stays with the listener for the next.
fn adopt(env: Env, listener: &mut Socket, fd: OwnedFd, owner: LocalPid, pollset: u16) -> Result<Handle, Errno> {
    let (Some(module), Some(mut socket)) = (listener.module, table::allocate()) else {
        return Err(Errno::MFILE);
    };
    for &(level, name, value) in &listener.set_while_listening {
        // What the listener took, a connection takes.
        let _ = sockopt::set_int(fd.as_fd(), level, name, value);
    }
    let about = (module, pollset, listener.options);
    match socket.open(env, fd, State::Connected, about, owner) {
        Ok(handle) => {
            if socket.is_active() {
                // Its data is read at the next poll, after the answer to accept.
                socket.enqueue(env);
            }
            Ok(handle)
        }
        Err(fd) => {
            listener.orphan = Some(fd);
            Err(Errno::SRCH)
        }
    }
}

fn report(env: Env, what: impl Encoder) {
    if let Some(pid) = env.whereis_pid(atoms::weir_pollsets()) {
        let _ = env.send(&pid, what);
    }
}
