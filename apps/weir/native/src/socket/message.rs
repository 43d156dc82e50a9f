//! The messages of gen_tcp. Messages whose order matters need a [`Voice`].

use rustler::{Atom, Encoder, Env, LocalPid, Term};

use crate::socket::owner::Subscriber;
use crate::socket::telling::Voice;
use crate::socket::{Socket, Waiter};
use crate::term::atoms;
use crate::term::data::{Data, Kind};
use crate::value::handle::Handle;

/// The user's term for a socket: `{'$inet', Module, Handle}`. Terms of the same socket are equal,
/// and cost only a tuple.
fn socket_term<'a>(env: Env<'a>, module: Option<Atom>, handle: Handle) -> Term<'a> {
    (atoms::inet_tag(), module, handle.raw()).encode(env)
}

fn tell(env: Env, socket: &Socket, message: impl Encoder) {
    // The monitor closes the socket of a dead owner.
    if let Some(owner) = socket.owner {
        let _ = env.send(&owner, message);
    }
}

/// Sends a packet to the owner, and `{tcp_passive, Socket}` after the last one of `{active, N}`.
pub fn data(voice: Voice, socket: &mut Socket, data: Data) {
    let term = socket_term(voice.env(), socket.module, socket.handle());
    let (active, passive) = socket.options.active.delivered();
    socket.options.active = active;
    match data.kind {
        Kind::Tcp => voice.tell(socket, (atoms::tcp(), term, data.term)),
        Kind::Http => voice.tell(socket, (atoms::http(), term, data.term)),
        Kind::Port => voice.tell(socket, (term, (atoms::data(), data.term))),
    }
    if passive {
        voice.tell(socket, (atoms::tcp_passive(), term));
    }
}

/// Sends `{tcp_passive, Socket}` to the owner.
pub fn passive(voice: Voice, socket: &mut Socket) {
    let term = socket_term(voice.env(), socket.module, socket.handle());
    voice.tell(socket, (atoms::tcp_passive(), term));
}

/// Sends `{weir_writable, Socket}` to a process that asked for it.
pub fn writable(env: Env, socket: &Socket, pid: LocalPid) {
    let term = socket_term(env, socket.module, socket.handle());
    let _ = env.send(&pid, (atoms::weir_writable(), term));
}

/// Sends `{weir_group, served, Socket}` to the owner.
pub fn served(env: Env, socket: &Socket) {
    let term = socket_term(env, socket.module, socket.handle());
    tell(env, socket, (atoms::weir_group(), atoms::served(), term));
}

/// Tells the owner that the socket is no longer a member: `{weir_group, left, Socket, Group,
/// Mark}`; for the callback of a reactor, `{{weir_reactor, Socket}, left, Group, Mark}`.
pub fn left(env: Env, socket: &Socket, group: Handle, mark: u64) {
    let group = (atoms::weir_group(), group.raw());
    if socket.reactor {
        let term = socket_term(env, Some(atoms::weir_tcp()), socket.handle());
        tell(env, socket, ((atoms::weir_reactor(), term), atoms::left(), group, mark));
    } else {
        let term = socket_term(env, socket.module, socket.handle());
        tell(env, socket, (atoms::weir_group(), atoms::left(), term, group, mark));
    }
}

/// Sends `{tcp_closed, Socket}` to the owner, once in the socket's life.
pub fn closed(voice: Voice, socket: &mut Socket) {
    if std::mem::replace(&mut socket.close_told, true) {
        return;
    }
    let term = socket_term(voice.env(), socket.module, socket.handle());
    voice.tell(socket, (atoms::tcp_closed(), term));
}

/// Sends `{tcp_error, Socket, Reason}` to the owner.
pub fn error(voice: Voice, socket: &mut Socket, reason: Atom) {
    let term = socket_term(voice.env(), socket.module, socket.handle());
    voice.tell(socket, (atoms::tcp_error(), term, reason));
}

/// Sends `{'$weir', Handle, Operation, Result}` to a waiting process. False if it is dead.
pub fn answer(env: Env, handle: Handle, waiter: Waiter, result: impl Encoder) -> bool {
    env.send(&waiter.pid, (atoms::weir_tag(), handle.raw(), waiter.operation, result)).is_ok()
}

/// Sends `{'DOWN', Reference, socket, Socket, normal}` to a process that monitors the socket.
pub fn down(env: Env, socket: &Socket, subscriber: Subscriber) {
    let term = socket_term(env, socket.module, socket.handle());
    let reference = subscriber.reference_in(env);
    let message = (atoms::down(), reference, atoms::socket(), term, atoms::normal());
    let _ = env.send(&subscriber.pid, message);
}
