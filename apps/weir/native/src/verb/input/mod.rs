//! From the kernel to the owner: reading, splitting into packets, delivering.
//!
//! `reading` has single reads and packets. This module repeats them for the receiver: a process in
//! `recv`, the owner of an active socket, or a reactor.

mod reading;

use rustix::io::Errno;
use rustler::{Encoder, Env, Term};

pub use self::reading::discard;
use self::reading::{Framed, Read, gather, read, take};
use crate::socket::following::Follows;
use crate::socket::message;
use crate::socket::{Ended, Reason, Receiver, Socket, State, Waiter};
use crate::term::atoms;
use crate::term::sender;
use crate::value::work::Work;

/// Result of an attempt to receive.
pub enum Received<'a> {
    Data(Term<'a>),
    /// Not enough data yet; the pollset continues when more arrives.
    NotYet,
    Failed(Reason),
}

/// Delivers available data to the receiver: the process in `recv`, or the owner of an active
/// socket.
pub fn serve(env: Env, socket: &mut Socket, work: &mut Work) {
    if socket.reactor {
        // Its data goes into the next batch.
        return socket.enqueue(env);
    }
    let voice = match socket.is_active() {
        false => None,
        true => match socket.voice(env) {
            None => return socket.leave_telling(env),
            voice => voice,
        },
    };
    if !serve_receiver(env, socket, work) {
        return;
    }
    while let Some(voice) = voice
        && socket.is_active()
    {
        if work.is_over() {
            return socket.enqueue(env);
        }
        work.stepped();
        let missing = match take(env, socket, 0) {
            Framed::Data(data) => {
                message::data(voice, socket, data);
                continue;
            }
            Framed::Invalid => {
                socket.input_ended(env, Some(Errno::MSGSIZE));
                return;
            }
            Framed::Missing(missing) => missing,
        };
        // After the end of input there is only data that was put back.
        if socket.read_closed {
            return;
        }
        if !socket.readable.is_ready() {
            if let Err(errno) = socket.register() {
                socket.input_ended(env, Some(errno));
            }
            return;
        }
        match read(env, socket, missing, work) {
            Read::Some(Framed::Data(data)) => message::data(voice, socket, data),
            Read::Some(Framed::Missing(_)) => {}
            Read::Some(Framed::Invalid) => {
                socket.input_ended(env, Some(Errno::MSGSIZE));
                return;
            }
            Read::WouldBlock => return,
            Read::End(error) => {
                socket.input_ended(env, error);
                return;
            }
        }
    }
}

/// Receives for the process that waits in `recv`, if any. False if it has to wait longer, or if the
/// input has failed.
fn serve_receiver(env: Env, socket: &mut Socket, work: &mut Work) -> bool {
    let Some(receiver) = socket.receiver.take() else {
        return true;
    };
    // A receiver that was killed while it waited leaves its data to the next one.
    if !env.is_process_alive(receiver.waiter.pid) {
        return true;
    }
    // The end of input may close the socket.
    let handle = socket.handle();
    match receive(env, socket, receiver.length, work) {
        Received::NotYet => {
            socket.receiver = Some(receiver);
            false
        }
        Received::Failed(reason) => {
            message::answer(env, handle, receiver.waiter, (atoms::error(), reason));
            false
        }
        Received::Data(data) => {
            // If it has just died, the data is lost, as if it had died with the answer in its
            // mailbox.
            message::answer(env, handle, receiver.waiter, (atoms::ok(), data));
            true
        }
    }
}

/// The next input of a reactor's socket.
pub enum Next<'a> {
    Data(Term<'a>),
    Nothing,
    /// The end of the input, or an error.
    End(Option<Errno>),
}

/// Takes the next packet of a reactor's socket.
pub fn next<'a>(env: Env<'a>, socket: &mut Socket, work: &mut Work) -> Next<'a> {
    loop {
        let missing = match take(env, socket, 0) {
            Framed::Data(data) => return Next::Data(data.term),
            Framed::Invalid => return Next::End(Some(Errno::MSGSIZE)),
            Framed::Missing(missing) => missing,
        };
        if !socket.readable.is_ready() {
            return match socket.register() {
                Ok(()) => Next::Nothing,
                Err(errno) => Next::End(Some(errno)),
            };
        }
        match read(env, socket, missing, work) {
            Read::Some(Framed::Data(data)) => return Next::Data(data.term),
            Read::Some(Framed::Missing(_)) if work.is_over() => {
                socket.enqueue(env);
                return Next::Nothing;
            }
            Read::Some(Framed::Missing(_)) => work.stepped(),
            Read::Some(Framed::Invalid) => return Next::End(Some(Errno::MSGSIZE)),
            Read::WouldBlock => return Next::Nothing,
            Read::End(error) => return Next::End(error),
        }
    }
}

/// Receives `length` bytes, or a packet if `length` is zero. Incomplete data is kept for the next
/// attempt.
pub fn receive<'a>(env: Env<'a>, socket: &mut Socket, length: usize, work: &mut Work) -> Received<'a> {
    loop {
        let missing = match take(env, socket, length) {
            Framed::Data(data) => return Received::Data(data.term),
            Framed::Invalid => return Received::Failed(socket.input_ended(env, Some(Errno::MSGSIZE))),
            Framed::Missing(missing) => missing,
        };
        if !socket.readable.is_ready() {
            return Received::NotYet;
        }
        if work.is_over() {
            socket.enqueue(env);
            return Received::NotYet;
        }
        let result = match missing {
            Some(missing) if length != 0 => gather(socket, missing, work),
            _ => read(env, socket, missing, work),
        };
        match result {
            Read::Some(Framed::Data(data)) => return Received::Data(data.term),
            Read::Some(Framed::Invalid) => return Received::Failed(socket.input_ended(env, Some(Errno::MSGSIZE))),
            Read::Some(Framed::Missing(_)) | Read::WouldBlock => work.stepped(),
            Read::End(error) => return Received::Failed(socket.input_ended(env, error)),
        }
    }
}

/// Makes `waiter` wait for `length` bytes, and ensures that their arrival is reported.
pub fn await_data(env: Env, socket: &mut Socket, waiter: Waiter, length: usize) -> rustix::io::Result<()> {
    socket.follow_receiver(env);
    socket.register()?;
    socket.receiver = Some(Box::new(Receiver { waiter, length }));
    Ok(())
}

/// Whether the socket can be read in its state.
pub fn is_readable(socket: &Socket) -> bool {
    socket.state == State::Connected
}

/// The result of `recv`, `{ok, Data}` or `{error, Reason}`; `None` if the caller has to wait.
pub fn result<'a>(env: Env<'a>, received: Received<'a>) -> Option<Term<'a>> {
    match received {
        Received::Data(data) => Some((atoms::ok(), data).encode(env)),
        Received::Failed(reason) => Some((atoms::error(), reason).encode(env)),
        Received::NotYet => None,
    }
}

/// What the caller must do after it has asked for messages.
pub enum Asked {
    Nothing,
    /// The caller is the owner. Once it has moved the messages up to this number into its queue,
    /// it may send itself the waiting data, and others may send later data.
    Settle(u32),
}

/// Delivers waiting data to the owner of an active socket. `changed`: the active mode is of
/// another kind than before.
pub fn activate(env: Env, socket: &mut Socket, changed: bool, work: &mut Work) -> Asked {
    // Asking again after the end of input reads again, since there may be data behind an invalid
    // packet.
    if socket.state == State::Connected && changed && std::mem::take(&mut socket.read_closed) {
        socket.readable.try_again();
    }
    announce(env, socket, work)
}

/// Delivers waiting data, at once if the caller may send messages to the owner. If the caller is
/// the owner, this saves a hop to the poller.
pub fn announce(env: Env, socket: &mut Socket, work: &mut Work) -> Asked {
    let follows = socket.owner_asks(env);
    if !something_waits(socket) {
        if follows == Follows::WhenTold || socket.awaits_others(env) {
            return Asked::Settle(socket.told);
        }
        if socket.state == State::Connected
            && socket.is_active()
            && !socket.read_closed
            && let Err(errno) = socket.register()
        {
            socket.input_ended(env, Some(errno));
        }
    } else if socket.reactor {
        socket.enqueue(env);
    } else if socket.is_told_by_caller(env) || socket.may_begin_telling(env) {
        let (teller, told) = (socket.teller, socket.told);
        deliver(env, socket, work);
        socket.forget_silence(teller, told);
        if socket.awaits_others(env) {
            return Asked::Settle(socket.told);
        }
    } else if socket.owner.is_some() && socket.owner == sender::caller(env) {
        return Asked::Settle(socket.told);
    } else if socket.state == State::Closed && socket.is_active() {
        let error = late_error(socket);
        socket.end(env, error.map_or(Ended::Closed, Ended::Failed));
    } else {
        socket.enqueue(env);
    }
    Asked::Nothing
}

/// Whether there may be something to send to the owner or to a receiver. Only a read tells what
/// the kernel has.
fn something_waits(socket: &Socket) -> bool {
    socket.has_untold()
        || match socket.state {
            State::Connected if socket.is_active() => {
                socket.input.is_some()
                    || socket.receiver.is_some()
                    || (socket.readable.is_ready() && !socket.read_closed)
            }
            State::Closed => socket.is_active(),
            _ => false,
        }
}

/// The error that the owner of a closed socket is told.
fn late_error(socket: &mut Socket) -> Option<Errno> {
    std::mem::take(&mut socket.late_econnreset).then_some(Errno::CONNRESET)
}

/// Sends waiting data to the owner if the caller may; otherwise leaves it to the poller.
pub fn deliver(env: Env, socket: &mut Socket, work: &mut Work) {
    socket.tell_rest(env);
    match socket.state {
        State::Connected => serve(env, socket, work),
        State::Closed if socket.is_active() => {
            let error = late_error(socket);
            socket.tell_end(env, error);
        }
        _ => {}
    }
}
