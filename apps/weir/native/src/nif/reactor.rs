//! Reactors and their connections.

use std::sync::atomic::Ordering::Relaxed;

use rustix::io::Errno;
use rustler::{Atom, Binary, Encoder, Env, Error, LocalPid, NifResult, Term};

use super::{PollsetIndex, failed, find, plain, posix, proper_list};
use crate::poll;
use crate::pollset;
use crate::reactor;
use crate::socket::table;
use crate::socket::{Socket, State};
use crate::term::address;
use crate::term::atoms;
use crate::value::handle::Handle;
use crate::value::packet;
use crate::value::work::Work;

#[rustler::nif]
fn reactor_begin(env: Env, index: PollsetIndex, home: PollsetIndex, max_send_queue: usize) -> NifResult<Atom> {
    if usize::from(home.0) >= pollset::SCHEDULERS || usize::from(index.0) < pollset::SCHEDULERS {
        return Err(Error::BadArg);
    }
    of_caller(env, index.0)?;
    let settings = pollset::private::settings(index.0);
    settings.max_send_queue.store(max_send_queue, Relaxed);
    settings.home.store(home.0, Relaxed);
    Ok(atoms::ok())
}

#[rustler::nif]
fn react<'a>(env: Env<'a>, index: PollsetIndex, token: u32, writes: Term<'a>) -> NifResult<Term<'a>> {
    let began = std::time::Instant::now();
    let result = poll::react(env, index.0, token, writes)?;
    rustler::schedule::consume_timeslice(env, percent(began));
    Ok(match result {
        Some((events, polled)) => (events, polled.events, polled.round_ns).encode(env),
        None => atoms::stale().encode(env),
    })
}

/// Elapsed time in percent of a time slice, which is about 1 ms.
fn percent(began: std::time::Instant) -> i32 {
    (began.elapsed().as_micros() / 10).clamp(1, 100) as i32
}

#[rustler::nif]
fn reactor_write<'a>(env: Env<'a>, handle: Handle, data: Term<'a>) -> NifResult<Term<'a>> {
    let mut socket = socket!(env, handle, atoms::closed());
    if !socket.reactor {
        return Ok(failed(env, atoms::not_reactor()));
    }
    let mut work = Work::of_caller();
    let written = reactor::write(env, &mut socket, data, &mut work);
    rustler::schedule::consume_timeslice(env, work.percent());
    Ok(match written {
        Ok(()) => atoms::ok().encode(env),
        Err(reason) => failed(env, reason),
    })
}

#[rustler::nif]
fn reactor_listen<'a>(env: Env<'a>, index: PollsetIndex, handle: Handle) -> NifResult<Term<'a>> {
    of_caller(env, index.0)?;
    let mut socket = socket!(env, handle, atoms::closed());
    if socket.state != State::Listening {
        return Ok(failed(env, atoms::einval()));
    }
    socket.listening.get_or_insert_default().reactor = Some(env.pid());
    let listening = socket.move_to(env, index.0).and_then(|()| socket.register());
    socket.readable.try_again();
    socket.enqueue(env);
    Ok(plain(env, listening))
}

#[rustler::nif]
fn reactor_join<'a>(env: Env<'a>, index: PollsetIndex, handle: Handle) -> NifResult<Term<'a>> {
    of_caller(env, index.0)?;
    let mut socket = socket!(env, handle, atoms::closed());
    Ok(match may_join(env, &socket) {
        Ok(()) if socket.state != State::Connected => failed(env, atoms::enotconn()),
        Ok(()) => plain(env, socket.join_reactor(env, index.0)),
        Err(reason) => failed(env, reason),
    })
}

#[rustler::nif]
fn reactor_connect<'a>(env: Env<'a>, index: PollsetIndex, handle: Handle, to: Term<'a>) -> NifResult<Term<'a>> {
    of_caller(env, index.0)?;
    let address = address::decode(to)?;
    let mut socket = socket!(env, handle, atoms::closed());
    if let Err(reason) = may_join(env, &socket) {
        return Ok(failed(env, reason));
    }
    if socket.state != State::Open {
        return Ok(failed(env, atoms::einval()));
    }
    let connected = address.and_then(|address| {
        socket.join_reactor(env, index.0)?;
        reactor::connect(env, &mut socket, &address)
    });
    Ok(match connected {
        Ok(()) => atoms::ok().encode(env),
        Err(errno) => {
            socket.release(env);
            posix(env, errno)
        }
    })
}

/// Badarg unless the caller polls the pollset. The caller would get no events of sockets on
/// another pollset.
fn of_caller(env: Env, index: u16) -> NifResult<()> {
    if pollset::is_polled_by(index, env.pid()) { Ok(()) } else { Err(Error::BadArg) }
}

/// Checks that the calling reactor may take this socket. A reactor would never answer pending
/// operations, so it takes no socket that has any.
fn may_join(env: Env, socket: &Socket) -> Result<(), Atom> {
    if socket.owner != Some(env.pid()) || socket.reactor {
        return Err(atoms::not_owner());
    }
    let busy = socket.receiver.is_some() || socket.output.as_ref().is_some_and(|output| !output.waiting.is_empty());
    if busy { Err(atoms::ealready()) } else { Ok(()) }
}

#[rustler::nif]
fn reactor_leave<'a>(
    env: Env<'a>,
    handle: Handle,
    owner: LocalPid,
    index: PollsetIndex,
    unread: Term<'a>,
) -> NifResult<Term<'a>> {
    let unread = proper_list(unread)?.into_iter().map(Binary::from_term).collect::<NifResult<Vec<Binary>>>()?;
    let mut socket = socket!(env, handle, atoms::closed());
    if !socket.reactor || socket.owner != Some(env.pid()) {
        return Ok(failed(env, atoms::not_reactor()));
    }
    let mut bytes = Vec::new();
    for body in unread {
        let Some((header, size)) = packet::header(socket.options.packet, body.len()) else {
            return Ok(posix(env, Errno::MSGSIZE));
        };
        bytes.extend_from_slice(&header[..size]);
        bytes.extend_from_slice(&body);
    }
    if !bytes.is_empty() {
        socket.input.get_or_insert_default().unread(&bytes);
    }
    Ok(match socket.leave_reactor(env, owner, pollset::online::pollset(index.0)) {
        Ok(true) => atoms::ok().encode(env),
        Ok(false) => Err(Error::BadArg)?,
        Err(errno) => posix(env, errno),
    })
}

#[rustler::nif]
fn reactor_of<'a>(env: Env<'a>, handle: Handle) -> NifResult<Term<'a>> {
    let socket = socket!(env, handle, atoms::closed());
    Ok(match socket.owner {
        Some(owner) if socket.reactor => (atoms::ok(), owner).encode(env),
        _ => failed(env, atoms::not_reactor()),
    })
}

#[rustler::nif]
fn reactor_resume(env: Env, handle: Handle) -> Atom {
    if let Some(mut socket) = table::find(handle) {
        socket.readable.try_again();
        socket.enqueue(env);
    }
    atoms::ok()
}

#[rustler::nif]
fn abandoned() -> Vec<u16> {
    pollset::private::abandoned()
}

#[rustler::nif]
fn reap(env: Env, index: PollsetIndex, piece: usize) -> NifResult<Atom> {
    if !pollset::private::is_abandoned(index.0) {
        return Err(Error::BadArg);
    }
    Ok(match reactor::reap(env, index.0, piece) {
        Some(true) => atoms::ok(),
        Some(false) => atoms::more(),
        None => {
            pollset::private::reaped(index.0);
            atoms::done()
        }
    })
}
