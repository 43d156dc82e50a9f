//! One epoll instance and its ready list, for one scheduler.

use std::mem::MaybeUninit;
use std::sync::OnceLock;
use std::time::Instant;

use rustix::event::epoll::EventFlags;
use rustler::sys::{ERL_NIF_SELECT_READ, enif_select};
use rustler::{Encoder, Env, LocalPid, Resource, ResourceArc};

use crate::counters::{Counters, add};
use crate::epoll::{BATCH, Epoll};
use crate::handle::Handle;
pub use crate::ready::Sleep;
use crate::ready::{Ready, Taken};
use crate::socket::{Socket, State};
use crate::work::Work;
use crate::{accept, atoms, connect, input, output, table};

/// Pollsets that there can be: the VM has 1024 schedulers at most, numbered from one.
pub const POLLSETS: usize = 1025;

/// A pollset outlives its pollers: it is made when its scheduler's first poller asks for it, and never freed.
struct Pollset {
    epoll: Epoll,
    /// What `enif_select` knows the epoll descriptor by.
    anchor: ResourceArc<Anchor>,
    ready: Ready<LocalPid>,
    counters: Counters,
}

/// The VM wants an object for every descriptor that it watches.
struct Anchor;

#[cfg_attr(not(test), rustler::resource_impl)]
impl Resource for Anchor {}

static ALL: [OnceLock<Pollset>; POLLSETS] = [const { OnceLock::new() }; POLLSETS];

/// The pollset with a number that was checked when the socket or the poller got it.
fn pollset(index: u16) -> &'static Pollset {
    match ALL[usize::from(index)].get() {
        Some(pollset) => pollset,
        None => unreachable!("pollset {index} was never made"),
    }
}

/// Whether there is a pollset with this number.
pub fn exists(index: u16) -> bool {
    ALL.get(usize::from(index)).is_some_and(|pollset| pollset.get().is_some())
}

/// The epoll instance of a pollset.
pub fn epoll(index: u16) -> &'static Epoll {
    &pollset(index).epoll
}

/// The counters of a pollset.
pub fn counters(index: u16) -> &'static Counters {
    &pollset(index).counters
}

/// Makes the calling process the poller of a pollset, which is made if there is none. Returns the poller's token.
/// Whoever was the poller is no longer.
pub fn claim(env: Env, index: u16) -> rustix::io::Result<u32> {
    let cell = &ALL[usize::from(index)];
    if cell.get().is_none() {
        let made = Pollset {
            epoll: Epoll::new()?,
            anchor: ResourceArc::new(Anchor),
            ready: Ready::new(),
            counters: Counters::default(),
        };
        // Somebody else may have been faster; then ours is dropped.
        let _ = cell.set(made);
    }
    Ok(pollset(index).ready.claim(env.pid()))
}

/// Puts a socket on the ready list, and wakes the poller if it sleeps.
pub fn push_ready(env: Env, index: u16, handle: Handle) {
    pollset(index).ready.push(handle, |poller| {
        let _ = env.send(&poller, atoms::weir_wake());
    });
}

/// What a poll did: sockets visited, and nanoseconds from the end of the poll before to the start of this one.
pub struct Polled {
    pub events: usize,
    pub round_ns: u64,
}

/// Visits all sockets that are ready: those of the ready list and those that the kernel names, within the bound of a
/// call; the rest goes to the ready list. Nothing if the caller is not the poller any more.
pub fn poll(env: Env, index: u16, token: u32) -> Option<Polled> {
    let pollset = pollset(index);
    let now = Instant::now();
    let Taken { list, slept, round } = pollset.ready.take(token, now)?;
    if let Some(slept) = slept {
        add(&pollset.counters.asleep_ns, slept.as_nanos() as u64);
    }
    let mut work = Work::of_poll(now);
    let mut space = [const { MaybeUninit::uninit() }; BATCH];
    let events = pollset.epoll.take(&mut space);
    let count = list.len() + events.len();
    pollset.counters.polled(count as u64);
    for handle in list {
        if let Some(mut socket) = table::find(handle)
            && socket.queued
            && socket.pollset == index
        {
            socket.queued = false;
            visit(env, &mut socket, &mut work);
        }
    }
    for event in events {
        let Some(handle) = Handle::from_raw(event.data.u64()) else {
            continue;
        };
        if let Some(mut socket) = table::find(handle) {
            note(&mut socket, event.flags);
            visit(env, &mut socket, &mut work);
        }
    }
    pollset.ready.polled(if count == 0 { now } else { Instant::now() });
    Some(Polled { events: count, round_ns: round.as_nanos() as u64 })
}

/// What the kernel says about a socket. Edge-triggered: it says so once, and we remember.
fn note(socket: &mut Socket, flags: EventFlags) {
    let hung_up = flags.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR);
    socket.hung_up |= hung_up;
    socket.readable |= hung_up || flags.contains(EventFlags::IN);
    socket.writable |= hung_up || flags.contains(EventFlags::OUT);
}

/// Does what a socket has become ready for.
fn visit(env: Env, socket: &mut Socket, work: &mut Work) {
    if work.is_over() {
        return socket.enqueue(env);
    }
    work.visited();
    if socket.state == State::Connecting {
        connect::serve(env, socket);
    }
    match socket.state {
        State::Listening => accept::serve(env, socket, work),
        State::Connected => {
            if socket.output.is_some() {
                output::flush(env, socket, work);
            }
            if input::is_readable(socket) {
                input::serve(env, socket, work);
            }
        }
        State::Free | State::Open | State::Connecting | State::Closed => {}
    }
}

/// Lets the poller sleep. `armed` says that the VM still watches for an earlier sleep.
pub fn sleep(env: Env, index: u16, token: u32, armed: bool) -> Sleep {
    let pollset = pollset(index);
    let slept = pollset.ready.sleep(token, || armed || watch(env, pollset));
    if slept == Sleep::Armed {
        add(&pollset.counters.sleeps, 1);
    }
    slept
}

/// Has the VM tell the calling process, once, when the kernel names a socket. False if it does not.
fn watch(env: Env, pollset: &Pollset) -> bool {
    // SAFETY: the environment is the calling process's, the descriptor stays open for the life of the VM, as does the
    // object, and a null pid means the calling process.
    let result = unsafe {
        enif_select(
            env.as_c_arg(),
            pollset.epoll.as_raw_fd(),
            ERL_NIF_SELECT_READ,
            pollset.anchor.as_c_arg().cast_mut(),
            std::ptr::null(),
            atoms::undefined().as_c_arg(),
        )
    };
    result >= 0
}

impl Encoder for Polled {
    fn encode<'a>(&self, env: Env<'a>) -> rustler::Term<'a> {
        (self.events, self.round_ns).encode(env)
    }
}
