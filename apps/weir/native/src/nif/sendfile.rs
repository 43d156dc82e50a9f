//! sendfile.

use std::os::fd::{BorrowedFd, RawFd};

use rustler::{Binary, Encoder, Env, Error, NifResult, Term};

use super::{failed, find};
use crate::socket::Socket;
use crate::term::atoms;
use crate::value::handle::Handle;
use crate::value::work::Work;
use crate::verb::output::sendfile;
use crate::verb::output::sendfile::{Progress, Step};

#[rustler::nif]
fn sendfile_begin<'a>(env: Env<'a>, handle: Handle, file: Binary<'a>, offset: u64, length: u64) -> NifResult<Term<'a>> {
    let number = file.as_slice().try_into().map_err(|_| Error::BadArg)?;
    let number = RawFd::from_ne_bytes(number);
    if number < 0 || offset > i64::MAX as u64 || length > i64::MAX as u64 {
        return Err(Error::BadArg);
    }
    // SAFETY: not -1, and used only to duplicate it in this call; a number that is not open gives
    // EBADF.
    let file = unsafe { BorrowedFd::borrow_raw(number) };
    let mut socket = socket!(env, handle, atoms::einval());
    // A reactor would wait for its own events.
    if socket.reactor {
        return Ok(failed(env, atoms::einval()));
    }
    Ok(match sendfile::begin(env, &mut socket, file, offset, length) {
        Ok(()) => atoms::ok().encode(env),
        Err(reason) => failed(env, reason),
    })
}

#[rustler::nif]
fn sendfile_continue<'a>(env: Env<'a>, handle: Handle) -> NifResult<Term<'a>> {
    let mut socket = socket!(env, handle, atoms::closed());
    if let Some(sent) = sendfile::take_noted(env, &mut socket) {
        match sendfile::advance(env, &mut socket, sent) {
            Progress::More => {}
            progress => return Ok(sendfile_progress(env, &mut socket, progress)),
        }
    }
    let part = match sendfile::next(env, &mut socket, sendfile::MEMORY_PART) {
        Step::Send(part) => part,
        Step::Wait(operation) => return Ok((atoms::wait(), operation).encode(env)),
        Step::Closed => return Ok(failed(env, atoms::closed())),
    };
    let Some(sent) = part.send_from_memory() else {
        sendfile::put_off(&mut socket);
        return Ok(atoms::disk().encode(env));
    };
    let mut work = Work::of_caller();
    work.moved(sent.bytes as usize);
    rustler::schedule::consume_timeslice(env, work.percent());
    let progress = sendfile::advance(env, &mut socket, sent);
    Ok(sendfile_progress(env, &mut socket, progress))
}

#[rustler::nif(schedule = "DirtyIo")]
fn sendfile_from_disk<'a>(env: Env<'a>, handle: Handle) -> NifResult<Term<'a>> {
    let mut socket = socket!(env, handle, atoms::closed());
    let Some(part) = sendfile::disk_part(env, &mut socket) else {
        return Ok(failed(env, atoms::closed()));
    };
    // The socket is not locked during the read, however slow the disk is.
    drop(socket);
    let sent = part.send();
    let mut socket = socket!(env, handle, atoms::closed());
    sendfile::note(&mut socket, &part, sent);
    Ok(atoms::more().encode(env))
}

fn sendfile_progress<'a>(env: Env<'a>, socket: &mut Socket, progress: Progress) -> Term<'a> {
    match progress {
        Progress::Done(bytes) => (atoms::ok(), bytes).encode(env),
        Progress::More => atoms::more().encode(env),
        Progress::Full => match sendfile::await_room(env, socket) {
            Some(operation) => (atoms::wait(), operation).encode(env),
            None => failed(env, atoms::closed()),
        },
        Progress::Failed(reason) => failed(env, reason),
    }
}
