//! New sockets: open, bind, listen, connect, accept.

use std::os::fd::{AsFd, OwnedFd};

use rustix::io::Errno;
use rustler::{Atom, Binary, Encoder, Env, NifResult, Term};

use super::{PollsetIndex, done, failed, find, plain, posix};
use crate::socket::table;
use crate::socket::{Socket, State};
use crate::term::address;
use crate::term::atoms;
use crate::value::active::Active;
use crate::value::handle::Handle;
use crate::value::options::Options;
use crate::verb::accept;
use crate::verb::connect;
use crate::verb::listen;
use crate::verb::open;
use crate::verb::open::Family;

#[rustler::nif(name = "open")]
fn open_socket<'a>(env: Env<'a>, module: Atom, family: Family, index: PollsetIndex) -> Term<'a> {
    let opened = open::new(family);
    make_socket(env, (module, family, index), opened.map(|fd| (fd, State::Open)), |_| {})
}

#[rustler::nif(schedule = "DirtyIo")]
fn open_in<'a>(env: Env<'a>, module: Atom, family: Family, index: PollsetIndex, namespace: Binary<'a>) -> Term<'a> {
    let opened = open::in_namespace(family, &namespace);
    make_socket(env, (module, family, index), opened.map(|fd| (fd, State::Open)), |socket| {
        socket.netns = Some(namespace.as_slice().into());
    })
}

#[rustler::nif]
fn fdopen<'a>(env: Env<'a>, module: Atom, family: Family, index: PollsetIndex, fd: i32) -> Term<'a> {
    make_socket(env, (module, family, index), open::existing(family, fd), |socket| {
        socket.prebound = true;
        // Data stays unread until the process asks for it.
        socket.options.active = Active::Passive;
    })
}

/// Makes a descriptor a socket that the calling process owns.
fn make_socket<'a>(
    env: Env<'a>,
    (module, family, index): (Atom, Family, PollsetIndex),
    opened: rustix::io::Result<(OwnedFd, State)>,
    prepare: impl FnOnce(&mut Socket),
) -> Term<'a> {
    let (fd, state) = match opened {
        Ok(opened) => opened,
        Err(errno) => return posix(env, errno),
    };
    let Some(mut socket) = table::allocate() else {
        return posix(env, Errno::MFILE);
    };
    let options = Options { local: family == Family::Local, ..Options::default() };
    let about = (module, index.0, options);
    let handle = socket.open(env, fd, state, about, env.pid());
    if handle.is_ok() {
        prepare(&mut socket);
    }
    // The calling process is alive, since it calls.
    done(env, handle.map(Handle::raw).map_err(|_| Errno::SRCH))
}

#[rustler::nif]
fn bind<'a>(env: Env<'a>, handle: Handle, address: Term<'a>) -> NifResult<Term<'a>> {
    let address = address::decode(address)?;
    let socket = socket!(env, handle, atoms::closed());
    let result = match &socket.fd {
        Some(fd) => address.and_then(|address| rustix::net::bind(fd.as_fd(), &address)),
        None => Err(Errno::BADF),
    };
    Ok(plain(env, result))
}

#[rustler::nif]
fn listen<'a>(env: Env<'a>, handle: Handle, backlog: i32) -> NifResult<Term<'a>> {
    let mut socket = socket!(env, handle, atoms::closed());
    Ok(plain(env, listen::listen(&mut socket, backlog)))
}

#[rustler::nif]
fn refuse(env: Env<'_>, handle: Handle) -> NifResult<Term<'_>> {
    let mut socket = socket!(env, handle, atoms::closed());
    Ok(plain(env, listen::refuse(&mut socket)))
}

#[rustler::nif]
fn has_backlog<'a>(env: Env<'a>, handle: Handle) -> NifResult<Term<'a>> {
    let socket = socket!(env, handle, atoms::closed());
    Ok(listen::has_backlog(&socket).encode(env))
}

#[rustler::nif]
fn duplicate<'a>(env: Env<'a>, handle: Handle, index: PollsetIndex) -> NifResult<Term<'a>> {
    let socket = socket!(env, handle, atoms::closed());
    Ok(done(env, accept::duplicate(env, &socket, index.0).map(Handle::raw)))
}

#[rustler::nif(name = "connect")]
fn connect_socket<'a>(env: Env<'a>, handle: Handle, address: Term<'a>) -> NifResult<Term<'a>> {
    let address = address::decode(address)?;
    let mut socket = socket!(env, handle, atoms::closed());
    match socket.state {
        State::Open => {}
        State::Connected => return Ok(posix(env, Errno::ISCONN)),
        State::Connecting => return Ok(posix(env, Errno::ALREADY)),
        State::Free | State::Listening | State::Closed => return Ok(failed(env, atoms::einval())),
    }
    Ok(match address.and_then(|address| connect::begin(&mut socket, &address)) {
        Ok(false) => (atoms::wait(), connect::await_connection(env, &mut socket)).encode(env),
        Ok(true) => {
            if socket.is_active() {
                socket.enqueue(env);
            }
            atoms::ok().encode(env)
        }
        Err(errno) => posix(env, errno),
    })
}

#[rustler::nif(name = "accept")]
fn accept_socket<'a>(env: Env<'a>, handle: Handle, index: PollsetIndex, now: bool) -> NifResult<Term<'a>> {
    let mut listening = socket!(env, handle, atoms::closed());
    if listening.state != State::Listening {
        return Ok(failed(env, atoms::einval()));
    }
    // A caller that does not wait also gets connections that arrived after the last poll.
    if now {
        listening.readable.try_again();
    }
    // Processes that already wait are served first.
    if listening.readable.is_ready() && !accept::somebody_waits(&listening) {
        match accept::accept(env, &mut listening, index.0) {
            Ok(Some(accepted)) => return Ok((atoms::ok(), accepted.raw()).encode(env)),
            Ok(None) => {}
            Err(errno) => return Ok(posix(env, errno)),
        }
    }
    match accept::await_connection(env, &mut listening, index.0) {
        Ok(operation) => {
            if listening.readable.is_ready() {
                listening.enqueue(env);
            }
            Ok((atoms::wait(), operation).encode(env))
        }
        Err(errno) => Ok(posix(env, errno)),
    }
}
