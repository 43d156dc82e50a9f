//! The owner, the monitors and the pollset of a socket.

use rustler::{Atom, Encoder, Env, Error, LocalPid, NifResult, Term};

use super::{PollsetIndex, failed, find, plain};
use crate::socket::following::Placed;
use crate::socket::table;
use crate::term::atoms;
use crate::value::handle::Handle;
use crate::verb::evacuation;

#[rustler::nif]
fn owner<'a>(env: Env<'a>, handle: Handle) -> NifResult<Term<'a>> {
    let socket = socket!(env, handle, atoms::closed());
    Ok((atoms::ok(), socket.owner.map_or_else(|| atoms::undefined().encode(env), |pid| pid.encode(env))).encode(env))
}

#[rustler::nif]
fn set_owner<'a>(env: Env<'a>, handle: Handle, pid: LocalPid, forwarded: bool) -> NifResult<Term<'a>> {
    let mut socket = socket!(env, handle, atoms::closed());
    // A reactor hands over connections with `reactor_leave`.
    if socket.owner != Some(env.pid()) || socket.reactor {
        return Ok(failed(env, atoms::not_owner()));
    }
    Ok(match socket.set_owner(env, pid, forwarded.then(|| env.pid())) {
        true => atoms::ok().encode(env),
        false => Err(Error::BadArg)?,
    })
}

#[rustler::nif]
fn monitor<'a>(env: Env<'a>, handle: Handle, reference: Term<'a>) -> NifResult<Term<'a>> {
    if !reference.is_ref() {
        return Err(Error::BadArg);
    }
    let mut socket = socket!(env, handle, atoms::closed());
    let subscribed = socket.subscribe(env, env.pid(), reference);
    Ok(match subscribed {
        true => atoms::ok().encode(env),
        false => failed(env, atoms::closed()),
    })
}

#[rustler::nif]
fn demonitor(env: Env, handle: Handle, reference: Term) -> bool {
    table::find(handle).is_some_and(|mut socket| socket.unsubscribe(env, reference))
}

#[rustler::nif(name = "move")]
fn move_socket<'a>(env: Env<'a>, handle: Handle, index: PollsetIndex) -> NifResult<Term<'a>> {
    relocate(env, handle, index.0, false)
}

#[rustler::nif]
fn place<'a>(env: Env<'a>, handle: Handle, index: PollsetIndex) -> NifResult<Term<'a>> {
    relocate(env, handle, index.0, true)
}

fn relocate(env: Env, handle: Handle, pollset: u16, placed: bool) -> NifResult<Term> {
    let mut socket = socket!(env, handle, atoms::closed());
    if socket.reactor {
        return Ok(failed(env, atoms::reactor()));
    }
    socket.following.place(if placed { Placed::ByUser } else { Placed::ByListener });
    Ok(plain(env, socket.move_to(env, pollset)))
}

#[rustler::nif]
fn evacuate(env: Env, piece: usize) -> Atom {
    match evacuation::evacuate(env, piece) {
        Some(true) => atoms::ok(),
        Some(false) => atoms::more(),
        None => atoms::done(),
    }
}

#[rustler::nif]
fn lingering<'a>(env: Env<'a>, piece: usize) -> Term<'a> {
    match table::select(piece, |socket| socket.lingering.then(|| socket.handle().raw())) {
        Some(handles) => (atoms::ok(), handles).encode(env),
        None => atoms::done().encode(env),
    }
}

#[rustler::nif]
fn left_behind<'a>(env: Env<'a>, handle: Handle) -> Term<'a> {
    match table::find(handle).and_then(|socket| socket.left_behind()) {
        Some(bytes) => bytes.encode(env),
        None => atoms::done().encode(env),
    }
}

#[rustler::nif]
fn give_up(env: Env, handle: Handle) -> Atom {
    if let Some(mut socket) = table::find(handle)
        && socket.lingering
    {
        socket.release(env);
    }
    atoms::ok()
}
