//! Sending, receiving, shutdown and close.

use rustix::net::Shutdown;
use rustler::{Atom, Binary, Encoder, Env, Error, NifResult, Term};

use super::{asked, failed, find, plain, posix};
use crate::socket::{Ended, State, Waiter};
use crate::term::atoms;
use crate::value::active::Active;
use crate::value::handle::Handle;
use crate::value::options::Linger;
use crate::value::packet::Packet;
use crate::value::work::Work;
use crate::verb::input;
use crate::verb::output;
use crate::verb::output::Sent;

/// The longest length that `recv` accepts, as in the inet driver.
const LENGTH_MAX: usize = 64 * 1024 * 1024;

#[rustler::nif]
fn send<'a>(env: Env<'a>, handle: Handle, data: Term<'a>) -> NifResult<Term<'a>> {
    if let Ok(binary) = Binary::from_term(data) {
        return send_parts(env, handle, &[binary]);
    }
    if data.list_length()? > output::SLICES {
        return Err(Error::BadArg);
    }
    let parts: Vec<Binary> = data.decode()?;
    send_parts(env, handle, &parts)
}

fn send_parts<'a>(env: Env<'a>, handle: Handle, parts: &[Binary<'a>]) -> NifResult<Term<'a>> {
    let mut socket = socket!(env, handle, atoms::closed());
    let mut work = Work::of_caller();
    let sent = output::send(env, &mut socket, parts, &mut work);
    rustler::schedule::consume_timeslice(env, work.percent());
    let wait = |what: Atom, operation: u32| {
        let timeout = match socket.options.send_timeout {
            Some(milliseconds) => milliseconds.encode(env),
            None => atoms::infinity().encode(env),
        };
        (what, operation, timeout).encode(env)
    };
    Ok(match sent {
        Sent::Done => atoms::ok().encode(env),
        Sent::Wait(operation) => wait(atoms::wait(), operation),
        Sent::Full(operation) => wait(atoms::full(), operation),
        Sent::Failed(reason) => failed(env, reason),
    })
}

#[rustler::nif]
fn send_now<'a>(env: Env<'a>, handle: Handle, data: Term<'a>) -> NifResult<Term<'a>> {
    let binary = Binary::from_term(data);
    let data = match &binary {
        Ok(binary) => binary,
        Err(_) => &Binary::from_iolist(data)?,
    };
    let mut socket = socket!(env, handle, atoms::closed());
    let mut work = Work::of_caller();
    let sent = output::send_now(env, &mut socket, data, &mut work);
    rustler::schedule::consume_timeslice(env, work.percent());
    Ok(match sent {
        Ok(taken) => (atoms::ok(), taken).encode(env),
        Err(reason) => failed(env, reason),
    })
}

#[rustler::nif]
fn notify_writable<'a>(env: Env<'a>, handle: Handle) -> NifResult<Term<'a>> {
    let mut socket = socket!(env, handle, atoms::closed());
    Ok(match output::notify_writable(env, &mut socket) {
        Ok(()) => atoms::ok().encode(env),
        Err(reason) => failed(env, reason),
    })
}

#[rustler::nif]
fn recv<'a>(env: Env<'a>, handle: Handle, length: usize, now: bool) -> NifResult<Term<'a>> {
    let mut socket = socket!(env, handle, atoms::closed());
    if socket.state != State::Connected {
        return Ok(failed(env, socket.receive_refused()));
    }
    // A reactor would wait for its own events.
    if socket.is_active() || socket.reactor {
        return Ok(failed(env, atoms::einval()));
    }
    if length != 0 && socket.options.packet != Packet::Raw {
        return Ok(failed(env, atoms::einval()));
    }
    if length > LENGTH_MAX {
        return Ok(failed(env, atoms::enomem()));
    }
    if let Some(receiver) = &socket.receiver {
        // A receiver that was killed while it waited does not block others.
        if env.is_process_alive(receiver.waiter.pid) {
            return Ok(failed(env, atoms::ealready()));
        }
        socket.receiver = None;
    }
    // A caller that does not wait also gets data that arrived after the last poll.
    if now {
        socket.readable.try_again();
    }
    let mut work = Work::of_caller();
    let received = input::receive(env, &mut socket, length, &mut work);
    rustler::schedule::consume_timeslice(env, work.percent());
    if let Some(result) = input::result(env, received) {
        return Ok(result);
    }
    let waiter = Waiter { pid: env.pid(), operation: socket.next_operation() };
    Ok(match input::await_data(env, &mut socket, waiter, length) {
        Ok(()) => (atoms::wait(), waiter.operation).encode(env),
        Err(errno) => posix(env, errno),
    })
}

#[rustler::nif]
fn unrecv<'a>(env: Env<'a>, handle: Handle, data: Binary<'a>) -> NifResult<Term<'a>> {
    let mut socket = socket!(env, handle, atoms::closed());
    if socket.state != State::Connected {
        return Ok(failed(env, atoms::enotconn()));
    }
    if !data.is_empty() {
        socket.input.get_or_insert_default().unread(&data);
        let mut work = Work::of_caller();
        if socket.is_active() {
            return Ok(asked(env, input::announce(env, &mut socket, &mut work)));
        }
        if socket.receiver.is_some() {
            input::serve(env, &mut socket, &mut work);
        }
    }
    Ok(atoms::ok().encode(env))
}

#[rustler::nif]
fn activate_once<'a>(env: Env<'a>, handle: Handle) -> NifResult<Term<'a>> {
    let mut socket = socket!(env, handle, atoms::einval());
    let mut work = Work::of_caller();
    let before = std::mem::replace(&mut socket.options.active, Active::Once);
    let result = input::activate(env, &mut socket, before != Active::Once, &mut work);
    rustler::schedule::consume_timeslice(env, work.percent());
    Ok(asked(env, result))
}

#[rustler::nif]
fn cancel<'a>(env: Env<'a>, handle: Handle, operation: u32) -> NifResult<Term<'a>> {
    // The waiting operations of a closed socket have been answered.
    let mut socket = socket!(env, handle, atoms::replied());
    Ok(match socket.cancel(env, operation) {
        true => atoms::ok().encode(env),
        false => failed(env, atoms::replied()),
    })
}

#[rustler::nif]
fn shutdown<'a>(env: Env<'a>, handle: Handle, how: Atom) -> NifResult<Term<'a>> {
    let how = if how == atoms::read() {
        Shutdown::Read
    } else if how == atoms::write() {
        Shutdown::Write
    } else if how == atoms::read_write() {
        Shutdown::Both
    } else {
        return Err(Error::BadArg);
    };
    let mut socket = socket!(env, handle, atoms::closed());
    if socket.state != State::Connected {
        return Ok(failed(env, atoms::enotconn()));
    }
    Ok(plain(env, output::shutdown(&mut socket, how)))
}

#[rustler::nif]
fn close<'a>(env: Env<'a>, handle: Handle, when: Atom) -> NifResult<Term<'a>> {
    let mut socket = match find(handle, atoms::closed())? {
        Ok(socket) => socket,
        Err(_) => return Ok(atoms::ok().encode(env)),
    };
    if socket.reactor {
        socket.end(env, Ended::Closed);
        return Ok(atoms::ok().encode(env));
    }
    let unsent = socket.output.as_ref().is_some_and(|output| !output.queue.is_empty());
    if when == atoms::flush() && unsent && socket.options.linger != Linger::Reset {
        let operation = output::await_close(env, &mut socket);
        return Ok((atoms::wait(), operation).encode(env));
    }
    if when == atoms::descriptor() {
        socket.fail_senders(env, atoms::closed());
        socket.close_descriptor(env);
    } else if when == atoms::flush() || when == atoms::now() {
        socket.release(env);
    } else if when == atoms::background() {
        // The data of these senders is queued and will be sent; they need not wait for it.
        let waiting = socket.output.as_mut().map(|output| std::mem::take(&mut output.waiting));
        for (waiter, _) in waiting.into_iter().flatten() {
            socket.answer(env, waiter, (atoms::error(), atoms::closed()));
        }
        socket.leave(env);
    } else {
        return Err(Error::BadArg);
    }
    Ok(atoms::ok().encode(env))
}
