//! The boundary: every function of the Erlang module `weir_nif`, where each is documented.
//!
//! A wrong argument is a badarg, a closed socket a tagged error; every call is bounded (see [`Work`]). Nothing here
//! decides: the functions find the socket, lock it and hand it on.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::MutexGuard;
use std::sync::atomic::Ordering::Relaxed;

use rustix::io::Errno;
use rustix::net::Shutdown;
use rustler::{Atom, Binary, Decoder, Encoder, Env, Error, LocalPid, NifResult, Term};

use crate::active::Active;
use crate::handle::Handle;
use crate::open::Family;
use crate::options::Setting;
use crate::output::Sent;
use crate::packet::Packet;
use crate::pollset::Sleep;
use crate::sendfile::{Next, Progress};
use crate::socket::{Linger, Options, Reason, Socket, State, Waiter};
use crate::table::Lookup;
use crate::work::Work;
use crate::{accept, address, atoms, connect, errno, input, open, options, output, pollset, sendfile, table};

/// The most that `recv` takes a length of, as in the inet driver.
const LENGTH_MAX: usize = 64 * 1024 * 1024;

impl<'a> Decoder<'a> for Handle {
    fn decode(term: Term<'a>) -> NifResult<Handle> {
        Handle::from_raw(term.decode()?).ok_or(Error::BadArg)
    }
}

/// The number of a pollset that there is.
struct PollsetIndex(u16);

impl<'a> Decoder<'a> for PollsetIndex {
    fn decode(term: Term<'a>) -> NifResult<PollsetIndex> {
        let index = term.decode()?;
        pollset::exists(index).then_some(PollsetIndex(index)).ok_or(Error::BadArg)
    }
}

type Locked = MutexGuard<'static, Socket>;

/// The socket of a handle, or what to say if it is closed; badarg if there never was one. A socket that nobody owns any
/// more is closed to all, whatever of it is still being sent.
fn find(handle: Handle, closed: Reason) -> NifResult<Result<Locked, Reason>> {
    match table::lookup(handle) {
        Lookup::Open(socket) if !socket.lingering => Ok(Ok(socket)),
        Lookup::Open(_) | Lookup::Gone => Ok(Err(closed)),
        Lookup::Never => Err(Error::BadArg),
    }
}

/// The elements of a list; badarg for what is no list or an improper one, which the decoder of vectors does not bear.
fn proper_list(list: Term) -> NifResult<Vec<Term>> {
    list.list_length()?;
    list.decode()
}

fn failed(env: Env, reason: impl Encoder) -> Term {
    (atoms::error(), reason).encode(env)
}

fn posix(env: Env, errno: Errno) -> Term {
    failed(env, errno::atom(env, errno))
}

fn done<T: Encoder>(env: Env, result: rustix::io::Result<T>) -> Term {
    match result {
        Ok(value) => (atoms::ok(), value).encode(env),
        Err(errno) => posix(env, errno),
    }
}

fn plain(env: Env, result: rustix::io::Result<()>) -> Term {
    match result {
        Ok(()) => atoms::ok().encode(env),
        Err(errno) => posix(env, errno),
    }
}

/// Finds the socket or returns `{error, $closed}` from the function.
macro_rules! socket {
    ($env:expr, $handle:expr, $closed:expr) => {
        match find($handle, $closed)? {
            Ok(socket) => socket,
            Err(reason) => return Ok(failed($env, reason)),
        }
    };
}

#[rustler::nif]
fn claim<'a>(env: Env<'a>, index: usize) -> NifResult<Term<'a>> {
    if index >= pollset::POLLSETS {
        return Err(Error::BadArg);
    }
    Ok(done(env, pollset::claim(env, index as u16)))
}

#[rustler::nif]
fn poll<'a>(env: Env<'a>, index: PollsetIndex, token: u32) -> Term<'a> {
    match pollset::poll(env, index.0, token) {
        Some(polled) => polled.encode(env),
        None => atoms::stale().encode(env),
    }
}

#[rustler::nif]
fn sleep(env: Env, index: PollsetIndex, token: u32, armed: bool) -> Atom {
    match pollset::sleep(env, index.0, token, armed) {
        Sleep::Armed => atoms::armed(),
        Sleep::Busy => atoms::busy(),
        Sleep::Stale => atoms::stale(),
        Sleep::Refused => atoms::error(),
    }
}

#[rustler::nif]
fn counters<'a>(env: Env<'a>, index: PollsetIndex) -> NifResult<Term<'a>> {
    let counters = pollset::counters(index.0);
    let histogram: Vec<u64> = counters.events_log2.iter().map(|bucket| bucket.load(Relaxed)).collect();
    let numbers = [
        (atoms::polls(), &counters.polls),
        (atoms::empty_polls(), &counters.empty_polls),
        (atoms::events(), &counters.events),
        (atoms::events_max(), &counters.events_max),
        (atoms::sleeps(), &counters.sleeps),
        (atoms::asleep_ns(), &counters.asleep_ns),
        (atoms::reads(), &counters.reads),
        (atoms::read_bytes(), &counters.read_bytes),
        (atoms::writes(), &counters.writes),
        (atoms::written_bytes(), &counters.written_bytes),
        (atoms::short_writes(), &counters.short_writes),
        (atoms::accepts(), &counters.accepts),
        (atoms::moved_in(), &counters.moved_in),
        (atoms::moved_out(), &counters.moved_out),
    ];
    let mut pairs: Vec<(Term, Term)> =
        numbers.iter().map(|(name, counter)| (name.encode(env), counter.load(Relaxed).encode(env))).collect();
    pairs.push((atoms::events_min().encode(env), counters.events_min().encode(env)));
    pairs.push((atoms::events_log2().encode(env), histogram.encode(env)));
    pairs.push((atoms::sockets().encode(env), counters.sockets.load(Relaxed).encode(env)));
    Term::map_from_pairs(env, &pairs)
}

#[rustler::nif(name = "open")]
fn open_socket<'a>(env: Env<'a>, module: Atom, family: Family, index: PollsetIndex) -> Term<'a> {
    let opened = open::new(family);
    make_socket(env, (module, index), opened.map(|fd| (fd, State::Open)), |_| {})
}

#[rustler::nif(schedule = "DirtyIo")]
fn open_in<'a>(env: Env<'a>, module: Atom, family: Family, index: PollsetIndex, namespace: Binary<'a>) -> Term<'a> {
    let opened = open::in_namespace(family, &namespace);
    make_socket(env, (module, index), opened.map(|fd| (fd, State::Open)), |socket| {
        socket.netns = Some(namespace.as_slice().into());
    })
}

#[rustler::nif]
fn fdopen<'a>(env: Env<'a>, module: Atom, family: Family, index: PollsetIndex, fd: i32) -> Term<'a> {
    make_socket(env, (module, index), open::existing(family, fd), |socket| {
        socket.prebound = true;
        // What has come for it waits until somebody asks.
        socket.options.active = Active::Passive;
    })
}

/// Makes a descriptor a socket of the calling process.
fn make_socket<'a>(
    env: Env<'a>,
    (module, index): (Atom, PollsetIndex),
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
    let about = (module, index.0, Options::default());
    let handle = socket.open(env, fd, state, about, env.pid());
    if handle.is_ok() {
        prepare(&mut socket);
    }
    // The calling process is alive: it calls.
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
    Ok(plain(env, accept::listen(&mut socket, backlog)))
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
    let mut listener = socket!(env, handle, atoms::closed());
    if listener.state != State::Listening {
        return Ok(failed(env, atoms::einval()));
    }
    // What has come since the last poll counts for somebody who does not wait.
    listener.readable |= now;
    // Those who wait come first.
    if listener.readable && !accept::somebody_waits(&listener) {
        match accept::accept(env, &mut listener, index.0) {
            Ok(Some(accepted)) => return Ok((atoms::ok(), accepted.raw()).encode(env)),
            Ok(None) => {}
            Err(errno) => return Ok(posix(env, errno)),
        }
    }
    match accept::await_connection(env, &mut listener, index.0) {
        Ok(operation) => {
            if listener.readable {
                listener.enqueue(env);
            }
            Ok((atoms::wait(), operation).encode(env))
        }
        Err(errno) => Ok(posix(env, errno)),
    }
}

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
fn sendfile_begin<'a>(env: Env<'a>, handle: Handle, file: Binary<'a>, offset: u64, length: u64) -> NifResult<Term<'a>> {
    let number = file.as_slice().try_into().map_err(|_| Error::BadArg)?;
    let number = RawFd::from_ne_bytes(number);
    if number < 0 || offset > i64::MAX as u64 || length > i64::MAX as u64 {
        return Err(Error::BadArg);
    }
    // SAFETY: not -1, and used in this call only, to be duplicated: a number that is not open is an EBADF.
    let file = unsafe { BorrowedFd::borrow_raw(number) };
    let mut socket = socket!(env, handle, atoms::einval());
    Ok(match sendfile::begin(env, &mut socket, file, offset, length) {
        Ok(()) => atoms::ok().encode(env),
        Err(reason) => failed(env, reason),
    })
}

#[rustler::nif]
fn sendfile_continue<'a>(env: Env<'a>, handle: Handle) -> NifResult<Term<'a>> {
    let mut socket = socket!(env, handle, atoms::closed());
    let part = match sendfile::next(env, &mut socket, sendfile::MEMORY_PART) {
        Next::Send(part) => part,
        Next::Wait(operation) => return Ok((atoms::wait(), operation).encode(env)),
        Next::Closed => return Ok(failed(env, atoms::closed())),
    };
    let Some((part, sent)) = part.send_from_memory() else {
        sendfile::put_off(&mut socket);
        return Ok(atoms::disk().encode(env));
    };
    let mut work = Work::of_caller();
    work.moved(sent.bytes() as usize);
    rustler::schedule::consume_timeslice(env, work.percent());
    let progress = sendfile::advance(env, &mut socket, &part, sent);
    Ok(sendfile_progress(env, &mut socket, progress))
}

#[rustler::nif(schedule = "DirtyIo")]
fn sendfile_from_disk<'a>(env: Env<'a>, handle: Handle) -> NifResult<Term<'a>> {
    let mut socket = socket!(env, handle, atoms::closed());
    let part = match sendfile::next(env, &mut socket, sendfile::DISK_PART) {
        Next::Send(part) => part,
        Next::Wait(operation) => return Ok((atoms::wait(), operation).encode(env)),
        Next::Closed => return Ok(failed(env, atoms::closed())),
    };
    // Whatever the disk takes, nobody else waits for the socket meanwhile.
    drop(socket);
    let sent = part.send();
    let mut socket = socket!(env, handle, atoms::closed());
    let progress = sendfile::advance(env, &mut socket, &part, sent);
    Ok(sendfile_progress(env, &mut socket, progress))
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

#[rustler::nif]
fn recv<'a>(env: Env<'a>, handle: Handle, length: usize, now: bool) -> NifResult<Term<'a>> {
    let mut socket = socket!(env, handle, atoms::closed());
    if socket.state != State::Connected {
        return Ok(failed(env, socket.receive_refused()));
    }
    if socket.is_active() {
        return Ok(failed(env, atoms::einval()));
    }
    if length != 0 && socket.options.packet != Packet::Raw {
        return Ok(failed(env, atoms::einval()));
    }
    if length > LENGTH_MAX {
        return Ok(failed(env, atoms::enomem()));
    }
    if let Some(receiver) = &socket.receiver {
        // A receiver that was killed while it waited is in nobody's way.
        if env.is_process_alive(receiver.waiter.pid) {
            return Ok(failed(env, atoms::ealready()));
        }
        socket.receiver = None;
    }
    // What has come since the last poll counts for somebody who does not wait.
    socket.readable |= now;
    let mut work = Work::of_caller();
    let received = input::receive(env, &mut socket, length, &mut work);
    rustler::schedule::consume_timeslice(env, work.percent());
    if let Some(result) = input::result(env, received) {
        return Ok(result);
    }
    let waiter = Waiter { pid: env.pid(), operation: socket.next_operation() };
    Ok(match input::await_data(&mut socket, waiter, length) {
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
        if socket.is_active() || socket.receiver.is_some() {
            input::serve(env, &mut socket, &mut Work::of_caller());
        }
    }
    Ok(atoms::ok().encode(env))
}

#[rustler::nif]
fn activate_once<'a>(env: Env<'a>, handle: Handle) -> NifResult<Term<'a>> {
    let mut socket = socket!(env, handle, atoms::einval());
    let mut work = Work::of_caller();
    let before = std::mem::replace(&mut socket.options.active, Active::Once);
    options::activate(env, &mut socket, before != Active::Once, &mut work);
    rustler::schedule::consume_timeslice(env, work.percent());
    Ok(atoms::ok().encode(env))
}

#[rustler::nif]
fn setopts<'a>(env: Env<'a>, handle: Handle, settings: Term<'a>) -> NifResult<Term<'a>> {
    let settings = proper_list(settings)?.into_iter().map(Setting::decode).collect::<NifResult<Vec<Setting>>>()?;
    let mut socket = socket!(env, handle, atoms::einval());
    let mut work = Work::of_caller();
    let result = options::set(env, &mut socket, &settings, &mut work);
    rustler::schedule::consume_timeslice(env, work.percent());
    Ok(plain(env, result))
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
fn cancel<'a>(env: Env<'a>, handle: Handle, operation: u32) -> NifResult<Term<'a>> {
    // Closed sockets have answered.
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
    let unsent = socket.output.as_ref().is_some_and(|output| !output.queue.is_empty());
    if when == atoms::flush() && unsent && socket.options.linger != Linger::Reset {
        let operation = output::await_close(env, &mut socket);
        return Ok((atoms::wait(), operation).encode(env));
    }
    if when == atoms::descriptor() {
        socket.fail_senders(env, atoms::closed());
        socket.close_descriptor();
    } else if when == atoms::flush() || when == atoms::now() {
        socket.release(env);
    } else if when == atoms::background() {
        socket.leave(env);
    } else {
        return Err(Error::BadArg);
    }
    Ok(atoms::ok().encode(env))
}

#[rustler::nif]
fn owner<'a>(env: Env<'a>, handle: Handle) -> NifResult<Term<'a>> {
    let socket = socket!(env, handle, atoms::closed());
    Ok((atoms::ok(), socket.owner.map_or_else(|| atoms::undefined().encode(env), |pid| pid.encode(env))).encode(env))
}

#[rustler::nif]
fn set_owner<'a>(env: Env<'a>, handle: Handle, pid: LocalPid) -> NifResult<Term<'a>> {
    let mut socket = socket!(env, handle, atoms::closed());
    if socket.owner != Some(env.pid()) {
        return Ok(failed(env, atoms::not_owner()));
    }
    Ok(match socket.set_owner(env, pid) {
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
    let mut socket = socket!(env, handle, atoms::closed());
    Ok(plain(env, socket.move_to(env, index.0)))
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
    let socket = match table::lookup(handle) {
        Lookup::Open(socket) => socket,
        Lookup::Gone => return Ok(failed(env, atoms::closed())),
        Lookup::Never => return Err(Error::BadArg),
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
        (atoms::acceptors(), accept::waiting(env, &socket).encode(env)),
    ];
    Ok((atoms::ok(), Term::map_from_pairs(env, &pairs)?).encode(env))
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
