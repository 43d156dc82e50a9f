//! The right to send messages to the owner of a socket.

use rustler::{Atom, Encoder, Env, Error, NifResult, Term};

use super::{failed, find};
use crate::socket::table;
use crate::socket::telling::Queue;
use crate::term::atoms;
use crate::value::active::Active;
use crate::value::handle::Handle;
use crate::value::work::Work;
use crate::verb::input;
use crate::verb::options;

fn queue(atom: Atom) -> NifResult<Queue> {
    if atom == atoms::on_heap() {
        Ok(Queue::OnHeap)
    } else if atom == atoms::off_heap() {
        Ok(Queue::OffHeap)
    } else {
        Err(Error::BadArg)
    }
}

#[rustler::nif]
fn tell<'a>(env: Env<'a>, handle: Handle, told: u32, kept: Atom) -> NifResult<Atom> {
    let kept = queue(kept)?;
    let Ok(mut socket) = find(handle, atoms::closed())? else { return Ok(atoms::ok()) };
    if socket.owner != Some(env.pid()) || socket.reactor {
        socket.enqueue(env);
        return Ok(atoms::ok());
    }
    // A queue on the heap has no buffers, so it has all messages that were sent. A queue off the
    // heap has them all unless a poller has sent one since.
    if kept == Queue::OnHeap || socket.told == told {
        socket.settle(kept);
    }
    socket.follow_owner(env);
    let mut work = Work::of_caller();
    input::deliver(env, &mut socket, &mut work);
    if kept == Queue::OnHeap && socket.handle() == handle {
        // A queue on the heap also has the messages that the owner has just sent to itself.
        socket.settle(kept);
    }
    rustler::schedule::consume_timeslice(env, work.percent());
    Ok(atoms::ok())
}

#[rustler::nif]
fn unsettled<'a>(env: Env<'a>, handle: Handle) -> Term<'a> {
    match table::find(handle).filter(|socket| socket.unsettled).and_then(|socket| Some((socket.owner?, socket.told))) {
        Some((owner, told)) => (owner, told).encode(env),
        None => atoms::done().encode(env),
    }
}

#[rustler::nif]
fn all_unsettled<'a>(env: Env<'a>, piece: usize) -> Term<'a> {
    match table::select(piece, |socket| socket.unsettled.then(|| socket.handle().raw())) {
        Some(handles) => (atoms::ok(), handles).encode(env),
        None => atoms::done().encode(env),
    }
}

#[rustler::nif]
fn settled(env: Env, handle: Handle, told: u32, kept: Atom) -> NifResult<Atom> {
    let kept = queue(kept)?;
    if let Some(mut socket) = table::find(handle)
        && socket.unsettled
    {
        if socket.told == told {
            socket.settle(kept);
        }
        // If a message was sent since then, the poller asks again.
        socket.unsettled = false;
        socket.enqueue(env);
    }
    Ok(atoms::ok())
}

#[rustler::nif]
fn passivate<'a>(env: Env<'a>, handle: Handle) -> NifResult<Term<'a>> {
    let mut socket = match find(handle, atoms::einval())? {
        Ok(socket) => socket,
        Err(reason) => return Ok(failed(env, reason)),
    };
    let before = options::get(env, &socket, atoms::active().encode(env))?;
    socket.options.active = Active::Passive;
    Ok((atoms::ok(), before).encode(env))
}
