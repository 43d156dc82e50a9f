//! Listening: from when on a socket takes connections, and until when.

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

/// Listens; see listen(2). A listening socket may be told another backlog.
pub fn listen(socket: &mut Socket, backlog: i32) -> rustix::io::Result<()> {
    let Socket { fd: Some(fd), state: State::Open | State::Listening, .. } = socket else {
        return Err(Errno::INVAL);
    };
    rustix::net::listen(fd.as_fd(), backlog)?;
    // The one option that the kernel does not hand on to connections, and gen_tcp does.
    if let Some(priority) = kernel_options::priority(fd.as_fd()).filter(|&priority| priority != 0) {
        socket.listening.get_or_insert_default().set_late(libc::SOL_SOCKET, libc::SO_PRIORITY, priority);
    }
    socket.state = State::Listening;
    Ok(())
}

/// Has the kernel take no new connections for a listening socket. Those whose handshake has begun still come, and can be
/// accepted. A unix socket has no handshake: there one more may come.
pub fn refuse(socket: &mut Socket) -> rustix::io::Result<()> {
    let Socket { fd: Some(fd), state: State::Listening, .. } = socket else {
        return Err(Errno::INVAL);
    };
    match sockopt::get::<libc::c_int>(fd.as_fd(), libc::SOL_SOCKET, libc::SO_DOMAIN)? {
        libc::AF_UNIX => rustix::net::listen(fd.as_fd(), 0),
        // Where the kernel has no memory for a filter, or does not allow one, one more may come as well.
        _ => sockopt::drop_new(fd.as_fd()).or_else(|_| rustix::net::listen(fd.as_fd(), 0)),
    }
}

/// Whether connections wait in the backlog, as poll(2) has it: for every family, also where the kernel does not tell how many.
/// True if it cannot be known (EINTR, ENOMEM): so nobody is overlooked.
pub fn has_backlog(socket: &Socket) -> bool {
    const NOW: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };
    let Socket { fd: Some(fd), state: State::Listening, .. } = socket else {
        return false;
    };
    rustix::event::poll(&mut [PollFd::new(fd, PollFlags::IN)], Some(&NOW)) != Ok(0)
}

/// Has a listening socket accept through a listener, for a queue or for the reactor that has the socket.
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
