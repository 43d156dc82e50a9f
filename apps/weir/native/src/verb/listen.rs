//! Listening sockets: start, refuse new connections, attach to a listener.

use std::os::fd::AsFd;
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustler::Env;

use crate::kernel::sockopt;
use crate::listener::{Listener, Template};
use crate::socket::{Socket, State};
use crate::value::options::Options;
use crate::verb::kernel_options;

/// Starts to listen; see listen(2). On a listening socket, changes the backlog.
pub fn listen(socket: &mut Socket, backlog: i32) -> rustix::io::Result<()> {
    let Socket { fd: Some(fd), state: State::Open | State::Listening, .. } = socket else {
        return Err(Errno::INVAL);
    };
    rustix::net::listen(fd.as_fd(), backlog)?;
    // The priority is the only option that gen_tcp passes on to connections and the kernel does
    // not.
    if let Some(priority) = kernel_options::priority(fd.as_fd()).filter(|&priority| priority != 0) {
        socket.listening.get_or_insert_default().set_late(libc::SOL_SOCKET, libc::SO_PRIORITY, priority);
    }
    socket.state = State::Listening;
    Ok(())
}

/// Makes a listening socket refuse new connections. Handshakes in progress complete and can be
/// accepted. A unix socket has no handshake; it may take one more connection.
pub fn refuse(socket: &mut Socket) -> rustix::io::Result<()> {
    let Socket { fd: Some(fd), state: State::Listening, .. } = socket else {
        return Err(Errno::INVAL);
    };
    match sockopt::get::<libc::c_int>(fd.as_fd(), libc::SOL_SOCKET, libc::SO_DOMAIN)? {
        libc::AF_UNIX => rustix::net::listen(fd.as_fd(), 0),
        // If the kernel refuses the filter, one more connection may come, too.
        _ => sockopt::drop_new(fd.as_fd()).or_else(|_| rustix::net::listen(fd.as_fd(), 0)),
    }
}

/// Whether the backlog has connections, according to poll(2). Works for every family, also where
/// the kernel does not tell their number. True if poll fails (EINTR, ENOMEM), so that none is
/// overlooked.
pub fn has_backlog(socket: &Socket) -> bool {
    const NOW: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };
    let Socket { fd: Some(fd), state: State::Listening, .. } = socket else {
        return false;
    };
    rustix::event::poll(&mut [PollFd::new(fd, PollFlags::IN)], Some(&NOW)) != Ok(0)
}

/// Makes a listening socket accept through a listener, for a queue or for the reactor that owns
/// the socket.
pub fn attach(env: Env, socket: &mut Socket, listener: Arc<Listener>, queue: Option<usize>) -> rustix::io::Result<()> {
    let (State::Listening, Some(module)) = (socket.state, socket.module) else {
        return Err(Errno::INVAL);
    };
    socket.register()?;
    let (handle, pollset) = (socket.handle(), socket.pollset);
    let options = Options { debug: false, ..socket.options };
    let listening = socket.listening.get_or_insert_default();
    let is_reactors = queue.is_none();
    listener.add_listening(
        handle,
        pollset,
        is_reactors,
        Template { module, options, late_options: listening.late_options.clone() },
    );
    listening.listener = Some((listener, queue));
    socket.enqueue(env);
    Ok(())
}
