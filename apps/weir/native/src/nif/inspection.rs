//! Options, statistics and addresses of sockets.

use std::os::fd::{AsFd, AsRawFd};

use rustix::io::Errno;
use rustler::{Atom, Encoder, Env, NifResult, Term};

use super::{asked, done, failed, find, open, posix, proper_list};
use crate::relay;
use crate::socket::State;
use crate::socket::table;
use crate::term::address;
use crate::term::atoms;
use crate::value::handle::Handle;
use crate::value::work::Work;
use crate::verb::accept;
use crate::verb::group;
use crate::verb::input;
use crate::verb::input::Asked;
use crate::verb::options;
use crate::verb::options::{News, Setting};

#[rustler::nif]
fn contention<'a>(env: Env<'a>) -> NifResult<Term<'a>> {
    let tables = [
        (atoms::sockets(), table::SOCKETS.contended()),
        (atoms::relays(), relay::RELAYS.contended()),
        (atoms::groups(), group::ALL.contended()),
    ];
    Term::map_from_pairs(env, &tables)
}

#[rustler::nif]
fn setopts<'a>(env: Env<'a>, handle: Handle, settings: Term<'a>) -> NifResult<Term<'a>> {
    let settings = proper_list(settings)?.into_iter().map(Setting::decode).collect::<NifResult<Vec<Setting>>>()?;
    let mut socket = socket!(env, handle, atoms::einval());
    let mut work = Work::of_caller();
    let result = options::set(&mut socket, &settings).map(|news| match news {
        News::Active { changed } => input::activate(env, &mut socket, changed, &mut work),
        News::Passive => input::announce(env, &mut socket, &mut work),
        News::Nothing => Asked::Nothing,
    });
    rustler::schedule::consume_timeslice(env, work.percent());
    Ok(match result {
        Ok(result) => asked(env, result),
        Err(errno) => {
            if socket.has_untold() {
                socket.enqueue(env);
            }
            posix(env, errno)
        }
    })
}

#[rustler::nif]
fn getopts<'a>(env: Env<'a>, handle: Handle, names: Term<'a>) -> NifResult<Term<'a>> {
    let names = proper_list(names)?;
    let socket = socket!(env, handle, atoms::einval());
    let mut values = Vec::with_capacity(names.len());
    for name in names {
        values.extend(options::get(env, &socket, name)?);
    }
    Ok((atoms::ok(), values).encode(env))
}

#[rustler::nif]
fn getstat<'a>(env: Env<'a>, handle: Handle) -> NifResult<Term<'a>> {
    let socket = socket!(env, handle, atoms::einval());
    let (received, sent) = (&socket.statistics.received, &socket.statistics.sent);
    let pending = socket.output.as_ref().map_or(0, |output| output.queue.len() as u64);
    let values = [
        (atoms::recv_oct(), received.bytes),
        (atoms::recv_cnt(), received.packets),
        (atoms::recv_max(), received.largest),
        (atoms::recv_avg(), received.average()),
        (atoms::recv_dvi(), received.deviation()),
        (atoms::send_oct(), sent.bytes),
        (atoms::send_cnt(), sent.packets),
        (atoms::send_max(), sent.largest),
        (atoms::send_avg(), sent.average()),
        (atoms::send_pend(), pending),
    ];
    Ok((atoms::ok(), values.to_vec()).encode(env))
}

#[rustler::nif]
fn sockname<'a>(env: Env<'a>, handle: Handle) -> NifResult<Term<'a>> {
    let socket = socket!(env, handle, atoms::einval());
    let address = match &socket.fd {
        Some(fd) => rustix::net::getsockname(fd.as_fd()),
        None => Err(Errno::BADF),
    };
    Ok(done(env, address.and_then(|address| address::encode(env, address))))
}

#[rustler::nif]
fn peername<'a>(env: Env<'a>, handle: Handle) -> NifResult<Term<'a>> {
    let socket = socket!(env, handle, atoms::einval());
    let address = match &socket.fd {
        Some(fd) => rustix::net::getpeername(fd.as_fd()).and_then(|address| address.ok_or(Errno::NOTCONN)),
        None => Err(Errno::NOTCONN),
    };
    Ok(done(env, address.and_then(|address| address::encode(env, address))))
}

#[rustler::nif]
fn info<'a>(env: Env<'a>, handle: Handle) -> NifResult<Term<'a>> {
    let Some(socket) = open(table::lookup(handle))? else {
        return Ok(failed(env, atoms::closed()));
    };
    let state = match socket.state {
        State::Free | State::Closed => atoms::closed(),
        State::Open => atoms::open(),
        State::Listening => atoms::listening(),
        State::Connecting => atoms::connecting(),
        State::Connected => atoms::connected(),
    };
    let owner = socket.owner.map_or_else(|| atoms::undefined().encode(env), |pid| pid.encode(env));
    let fd = socket.fd.as_ref().map_or_else(|| atoms::undefined().encode(env), |fd| fd.as_raw_fd().encode(env));
    let pairs = [
        (atoms::state(), state.encode(env)),
        (atoms::owner(), owner),
        (atoms::pollset(), socket.pollset.encode(env)),
        (atoms::module(), socket.module.encode(env)),
        (atoms::fd(), fd),
        (atoms::queued(), socket.queued.encode(env)),
        (atoms::acceptors(), accept::waiting(env, &socket).encode(env)),
    ];
    Ok((atoms::ok(), Term::map_from_pairs(env, &pairs)?).encode(env))
}

/// Answers `renew` to all waiting processes, so that they wait again in the current code.
#[rustler::nif]
fn renew(env: Env, chunk: usize) -> Atom {
    let told = table::select(chunk, |socket| {
        for waiter in socket.waiters() {
            socket.answer(env, waiter, atoms::renew());
        }
        None::<()>
    });
    if told.is_some() { atoms::ok() } else { atoms::done() }
}

/// Percent of a time slice that visiting a thousand sockets under their locks costs.
const PIECE_PERCENT: i32 = 10;

#[rustler::nif]
fn traffic<'a>(env: Env<'a>, chunk: usize) -> Term<'a> {
    let told = table::select(chunk, |socket| {
        let pending = socket.output.as_ref().map_or(0, |output| output.queue.len() as u64);
        let (received, sent) = (&socket.statistics.received, &socket.statistics.sent);
        Some((socket.handle().raw(), received.bytes, sent.bytes, pending))
    });
    rustler::schedule::consume_timeslice(env, PIECE_PERCENT);
    match told {
        None => atoms::done().encode(env),
        Some(sockets) => (atoms::ok(), sockets).encode(env),
    }
}

#[rustler::nif]
fn sockets<'a>(env: Env<'a>, chunk: usize) -> Term<'a> {
    match table::handles(chunk) {
        None => atoms::done().encode(env),
        Some(handles) => {
            let handles: Vec<u64> = handles.into_iter().map(Handle::raw).collect();
            (atoms::ok(), handles).encode(env)
        }
    }
}
