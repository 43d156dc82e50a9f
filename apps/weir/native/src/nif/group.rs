//! Groups.

use rustler::{Atom, Binary, Decoder, Encoder, Env, Error, NifResult, Term};

use super::{failed, find, open, posix};
use crate::term::atoms;
use crate::value::handle::Handle;
use crate::verb::group::broadcast::{self, Refused};
use crate::verb::group::delivery;
use crate::verb::group::{self, GroupSettings, Policy};

impl<'a> Decoder<'a> for GroupSettings {
    fn decode(term: Term<'a>) -> NifResult<GroupSettings> {
        let (policy, max_messages, max_bytes, backlog): (Atom, usize, usize, usize) = term.decode()?;
        let policy = if policy == atoms::drop_oldest() {
            Policy::DropOldest
        } else if policy == atoms::drop_newest() {
            Policy::DropNewest
        } else if policy == atoms::conflate() {
            Policy::Conflate
        } else if policy == atoms::disconnect() {
            Policy::Disconnect
        } else if policy == atoms::leave() {
            Policy::Leave
        } else {
            return Err(Error::BadArg);
        };
        if max_messages == 0 || backlog == 0 {
            return Err(Error::BadArg);
        }
        Ok(GroupSettings { policy, max_messages, max_bytes, backlog })
    }
}

#[rustler::nif]
fn group_new(env: Env, settings: GroupSettings) -> Term {
    match group::new(env, settings) {
        Some(group) => (atoms::ok(), group.raw()).encode(env),
        None => posix(env, rustix::io::Errno::MFILE),
    }
}

#[rustler::nif]
fn group_count() -> usize {
    group::ALL.occupied()
}

#[rustler::nif]
fn group_delete(env: Env, group: Handle) -> NifResult<Atom> {
    open(group::lookup(group))?;
    group::delete(env, group);
    Ok(atoms::ok())
}

#[rustler::nif]
fn group_join<'a>(env: Env<'a>, group: Handle, member: Handle, once: bool, first: Binary<'a>) -> NifResult<Term<'a>> {
    open(group::lookup(group))?;
    if first.len() > broadcast::MESSAGE {
        return Ok(failed(env, atoms::emsgsize()));
    }
    let mut socket = socket!(env, member, atoms::closed());
    Ok(match delivery::join(env, &mut socket, group, once, &first) {
        Ok(()) => atoms::ok().encode(env),
        Err(reason) => failed(env, reason),
    })
}

#[rustler::nif]
fn group_leave<'a>(env: Env<'a>, group: Handle, member: Handle) -> NifResult<Term<'a>> {
    let mut socket = socket!(env, member, atoms::not_member());
    Ok(match group::leave(env, &mut socket, group) {
        true => atoms::ok().encode(env),
        false => failed(env, atoms::not_member()),
    })
}

#[rustler::nif]
fn group_withdraw<'a>(env: Env<'a>, member: Handle) -> NifResult<Term<'a>> {
    let mut socket = socket!(env, member, atoms::closed());
    Ok(match group::withdraw(env, &mut socket) {
        true => atoms::ok().encode(env),
        false => failed(env, atoms::served()),
    })
}

#[rustler::nif]
fn group_broadcast<'a>(
    env: Env<'a>,
    group: Handle,
    message: Binary<'a>,
    except: Term<'a>,
    reference: Term<'a>,
    mark: u64,
) -> NifResult<Term<'a>> {
    open(group::lookup(group))?;
    let except = if atoms::undefined() == except { None } else { Some(except.decode()?) };
    let reference = match () {
        () if atoms::undefined() == reference => None,
        () if reference.is_ref() => Some(reference),
        () => return Err(Error::BadArg),
    };
    Ok(match broadcast::send(env, group, &message, except, reference, mark) {
        Ok(members) => (atoms::ok(), members).encode(env),
        Err(Refused::TooLarge) => failed(env, atoms::emsgsize()),
        Err(Refused::Busy) => failed(env, atoms::busy()),
        Err(Refused::Closed) => failed(env, atoms::closed()),
    })
}

#[rustler::nif]
fn group_size<'a>(env: Env<'a>, group: Handle) -> NifResult<Term<'a>> {
    Ok(open(group::lookup(group))?.map_or(0, |group| group.size()).encode(env))
}

#[rustler::nif]
fn group_info<'a>(env: Env<'a>, group: Handle) -> NifResult<Term<'a>> {
    let described = open(group::lookup(group))?.and_then(|group| group.describe(env));
    Ok(described.map_or_else(|| failed(env, atoms::closed()), |info| (atoms::ok(), info).encode(env)))
}
