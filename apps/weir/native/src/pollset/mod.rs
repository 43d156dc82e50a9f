//! One epoll instance and its ready list, for one scheduler.

use std::mem::MaybeUninit;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::Timespec;
use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use rustler::sys::{ERL_NIF_SELECT_READ, enif_select};
use rustler::{Encoder, Env, LocalPid, Monitor, Resource, ResourceArc};

use crate::kernel::epoll::{BATCH, Epoll};
use crate::kernel::waiter::Waiter;
use crate::reactor;
use crate::reactor::Batch;
use crate::relay;
use crate::socket::table;
use crate::socket::{Socket, State};
use crate::term::atoms;
use crate::value::counters::{Counters, Tally, add};
use crate::value::handle::{Handle, Target};
pub use crate::value::ready::Sleep;
use crate::value::ready::{Ready, Taken};
use crate::value::work::Work;
use crate::verb::accept;
use crate::verb::connect;
use crate::verb::group;
use crate::verb::input;
use crate::verb::output;

/// Pollsets of schedulers that there can be: the VM has 1024 of those at most, numbered from one.
pub const SCHEDULERS: usize = 1025;

/// Pollsets of processes that poll for themselves are numbered from there on.
const PRIVATE: usize = 1024;

/// A pollset outlives its pollers: it is made when its scheduler's first poller asks for it, and never freed. One that a
/// process had for itself is given to another when that process is gone.
struct Pollset {
    epoll: Epoll,
    /// What `enif_select` knows the epoll descriptor by.
    anchor: ResourceArc<Anchor>,
    ready: Ready<LocalPid>,
    waiter: Waiter,
    counters: Counters,
    /// As many sockets as a poll is likely to have time for.
    fits: AtomicUsize,
    /// What watches the process that has a private pollset. The monitor ends with this.
    lease: Mutex<Option<ResourceArc<Lease>>>,
    reactor: reactor::Settings,
}

/// A poll asks the kernel for so many sockets at least: the processor may have been taken away from the one before.
const FEWEST: usize = 64;

/// The VM wants an object for every descriptor that it watches.
struct Anchor;

#[cfg_attr(not(test), rustler::resource_impl)]
impl Resource for Anchor {}

static ALL: [OnceLock<Pollset>; SCHEDULERS + PRIVATE] = [const { OnceLock::new() }; SCHEDULERS + PRIVATE];

/// Pollsets of dead reactors, with what they have left behind.
static ABANDONED: Mutex<Vec<u16>> = Mutex::new(Vec::new());

/// Private pollsets that nobody has any more, and how many there are in all.
static VACANT: Mutex<(Vec<u16>, usize)> = Mutex::new((Vec::new(), 0));

/// What the death of the process with a private pollset is noticed by.
struct Lease {
    index: u16,
}

#[cfg_attr(not(test), rustler::resource_impl)]
impl Resource for Lease {
    const IMPLEMENTS_DOWN: bool = true;

    fn down<'a>(&'a self, env: Env<'a>, _pid: LocalPid, _monitor: Monitor) {
        let pollset = pollset(self.index);
        pollset.ready.abandon();
        if pollset.reactor.is_reactor() {
            // Closing thousands of connections takes longer than a call may.
            ABANDONED.lock().unwrap_or_else(PoisonError::into_inner).push(self.index);
            if let Some(reaper) = env.whereis_pid(atoms::weir_reaper()) {
                let _ = env.send(&reaper, (atoms::weir_abandoned(), self.index));
            }
        } else {
            give_back(self.index);
        }
    }
}

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
    make(index)?;
    Ok(pollset(index).ready.claim(env.pid()))
}

/// Makes the calling process the poller of a pollset of its own: its number and token. The pollset is its until it dies.
/// Its sockets should be too: nobody polls them after that. EMFILE when all are taken.
pub fn lease(env: Env) -> rustix::io::Result<(u16, u32)> {
    let index = {
        let mut vacant = VACANT.lock().unwrap_or_else(PoisonError::into_inner);
        match vacant.0.pop() {
            Some(index) => index,
            None if vacant.1 == PRIVATE => return Err(Errno::MFILE),
            None => {
                vacant.1 += 1;
                (SCHEDULERS + vacant.1 - 1) as u16
            }
        }
    };
    if let Err(errno) = make(index) {
        give_back(index);
        return Err(errno);
    }
    let token = pollset(index).ready.claim(env.pid());
    let lease = ResourceArc::new(Lease { index });
    // The calling process is alive: it calls.
    let _ = lease.monitor(Some(env), &env.pid());
    *pollset(index).lease.lock().unwrap_or_else(PoisonError::into_inner) = Some(lease);
    Ok((index, token))
}

/// Whether the calling process is the poller of a pollset.
pub fn is_polled_by_caller(env: Env, index: u16) -> bool {
    pollset(index).ready.is_polled_by(env.pid())
}

/// Takes a private pollset back.
fn give_back(index: u16) {
    VACANT.lock().unwrap_or_else(PoisonError::into_inner).0.push(index);
}

/// The settings of a pollset whose process is a reactor.
pub fn reactor(index: u16) -> &'static reactor::Settings {
    &pollset(index).reactor
}

/// The pollset of a scheduler that takes what a reactor's leaves behind.
pub fn home(index: u16) -> u16 {
    pollset(index).reactor.home.load(Relaxed)
}

/// The most bytes that wait to be sent on a reactor's socket.
pub fn max_send_queue(index: u16) -> usize {
    pollset(index).reactor.max_send_queue.load(Relaxed)
}

/// The pollsets of dead reactors.
pub fn abandoned() -> Vec<u16> {
    ABANDONED.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Whether a pollset is one of those.
pub fn is_abandoned(index: u16) -> bool {
    ABANDONED.lock().unwrap_or_else(PoisonError::into_inner).contains(&index)
}

/// The pollset of a dead reactor, on which there is nothing left, is for whoever wants one.
pub fn reaped(index: u16) {
    let mut abandoned = ABANDONED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(at) = abandoned.iter().position(|&other| other == index) {
        abandoned.swap_remove(at);
        // What was put there meanwhile is stale.
        pollset(index).ready.abandon();
        pollset(index).reactor.home.store(0, Relaxed);
        give_back(index);
    }
}

fn make(index: u16) -> rustix::io::Result<()> {
    let cell = &ALL[usize::from(index)];
    if cell.get().is_none() {
        let epoll = Epoll::new()?;
        let made = Pollset {
            waiter: Waiter::new(&epoll)?,
            epoll,
            anchor: ResourceArc::new(Anchor),
            ready: Ready::new(),
            counters: Counters::default(),
            fits: AtomicUsize::new(BATCH),
            lease: Mutex::new(None),
            reactor: reactor::Settings::none(),
        };
        // Somebody else may have been faster; then ours is dropped.
        let _ = cell.set(made);
    }
    Ok(())
}

/// Puts a target on the ready list, and wakes the poller if it sleeps.
pub fn push_ready(env: Env, index: u16, target: Target) {
    let pollset = pollset(index);
    pollset.ready.push(target, |poller| {
        // A message costs a process less, but does not go out of a dirty call of a process that was killed.
        if pollset.waiter.waits() || env.send(&poller, atoms::weir_wake()).is_err() {
            pollset.waiter.wake();
        }
    });
}

/// What a poll did: sockets visited, and nanoseconds from the end of the poll before to the start of this one.
pub struct Polled {
    pub events: usize,
    pub round_ns: u64,
    /// All that it has visited were relays that splice.
    pub bulk: bool,
}

/// Visits all sockets that are ready: those of the ready list and those that the kernel names, within the bound of a
/// call; the rest goes to the ready list. Nothing if the caller is not the poller any more.
pub fn poll(env: Env, index: u16, token: u32) -> Option<Polled> {
    let now = Instant::now();
    poll_with(env, index, token, now, Work::of_poll(now))
}

fn poll_with(env: Env, index: u16, token: u32, now: Instant, mut work: Work) -> Option<Polled> {
    // What the kernel has named and a poll has no time for goes over the ready list, which costs a second look at each
    // socket. What it has not named it keeps.
    let fits = &pollset(index).fits;
    // Reactors' sockets are not on the pollsets of schedulers.
    let polled = poll_into(env, index, token, (now, fits.load(Relaxed)), &mut work, &mut Batch::new(env))?;
    if let Some(visits) = work.fits(now) {
        fits.store(visits.clamp(FEWEST, BATCH), Relaxed);
    }
    Some(polled)
}

/// The same in a call that has begun at `now` with other work. The kernel is asked for `limit` sockets at most. What
/// reactors' sockets have goes into `batch`.
pub fn poll_into<'a>(
    env: Env<'a>,
    index: u16,
    token: u32,
    (now, limit): (Instant, usize),
    work: &mut Work,
    batch: &mut Batch<'a>,
) -> Option<Polled> {
    let pollset = pollset(index);
    let Taken { list, slept, round } = pollset.ready.take(token, now)?;
    if let Some(slept) = slept {
        add(&pollset.counters.asleep_ns, slept.as_nanos() as u64);
    }
    let mut space = [const { MaybeUninit::uninit() }; BATCH];
    let events = pollset.epoll.take(&mut space[..limit]);
    let count = list.len() + events.len();
    pollset.counters.polled(count as u64);
    let mut tally = Tally::default();
    // Beside that of the sockets, lest a long broadcast leaves them nothing.
    let mut groups = Work::of_groups(now);
    let mut unfinished = Vec::new();
    for target in list {
        match target {
            Target::Socket(handle) => revisit(env, index, handle, work, batch),
            Target::Relay(handle, _) => relay::revisit(env, handle, work, &mut tally),
            // Those that had no turn come before those that had one.
            Target::Group(handle) if groups.is_over() || work.is_silent() => {
                push_ready(env, index, Target::Group(handle))
            }
            Target::Group(handle) => {
                if group::serve(env, index, handle, &mut groups, &mut tally) {
                    unfinished.push(handle);
                }
            }
        }
    }
    for handle in unfinished {
        push_ready(env, index, Target::Group(handle));
    }
    for (at, event) in events.iter().enumerate() {
        if let Some(next) = events.get(at + table::AHEAD) {
            prefetch(next.data.u64());
        }
        match Target::from_raw(event.data.u64()) {
            Some(Target::Socket(handle)) => {
                if let Some(mut socket) = table::find(handle) {
                    note(&mut socket, event.flags);
                    visit(env, &mut socket, work, batch);
                }
            }
            Some(Target::Relay(handle, side)) => relay::ready(env, handle, side, event.flags, work, &mut tally),
            Some(Target::Group(_)) | None => {}
        }
    }
    tally.add_to(&pollset.counters);
    if let Some(tally) = &mut work.tally {
        std::mem::take(tally).add_to(&pollset.counters);
    }
    pollset.ready.polled(if count == 0 { now } else { Instant::now() });
    Some(Polled { events: count, round_ns: round.as_nanos() as u64, bulk: count > 0 && tally.bulk == count })
}

/// Has the processor fetch what an event is for.
fn prefetch(raw: u64) {
    match Target::from_raw(raw) {
        Some(Target::Socket(handle)) => table::prefetch(handle),
        Some(Target::Relay(handle, _)) => relay::prefetch(handle),
        Some(Target::Group(_)) | None => {}
    }
}

/// Visits a socket of the ready list, if it has not been taken to another pollset meanwhile.
fn revisit<'a>(env: Env<'a>, index: u16, handle: Handle, work: &mut Work, batch: &mut Batch<'a>) {
    if let Some(mut socket) = table::find(handle)
        // A gate that opens again has its listening sockets visited without their lock.
        && (socket.queued || socket.state == State::Listening)
        && socket.pollset == index
    {
        socket.queued = false;
        visit(env, &mut socket, work, batch);
    }
}

/// What the kernel says about a socket. Edge-triggered: it says so once, and we remember.
fn note(socket: &mut Socket, flags: EventFlags) {
    let hung_up = flags.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR);
    socket.hung_up |= hung_up;
    socket.readable |= hung_up || flags.contains(EventFlags::IN);
    socket.writable |= hung_up || flags.contains(EventFlags::OUT);
}

/// Does what a socket has become ready for.
fn visit<'a>(env: Env<'a>, socket: &mut Socket, work: &mut Work, batch: &mut Batch<'a>) {
    if work.is_over() || work.is_silent() {
        return socket.enqueue(env);
    }
    work.visited();
    if socket.reactor {
        return reactor::serve(env, socket, work, batch);
    }
    if socket.state == State::Connecting {
        connect::serve(env, socket);
    }
    match socket.state {
        State::Listening => match &socket.listener {
            Some(listener) if listener.reactor.is_some() => reactor::accept_all(env, socket, work, batch),
            _ => accept::serve(env, socket, work),
        },
        State::Connected => {
            if socket.output.is_some() {
                output::flush(env, socket, work);
            }
            if socket.writability.is_some() && socket.writable && socket.output.is_none() {
                socket.tell_writable(env);
            }
            // A failed write may have closed it.
            if input::is_readable(socket) {
                match socket.lingering {
                    true => input::discard(env, socket, work),
                    false => input::serve(env, socket, work),
                }
            }
        }
        State::Free | State::Open | State::Connecting | State::Closed => {}
    }
}

/// Lets the poller sleep. `armed` says that the VM still watches for an earlier sleep.
pub fn sleep(env: Env, index: u16, token: u32, armed: bool) -> Sleep {
    let pollset = pollset(index);
    let slept = pollset.ready.sleep(token, || {
        pollset.waiter.set(false);
        armed || watch(env, pollset)
    });
    if slept == Sleep::Armed {
        add(&pollset.counters.sleeps, 1);
    }
    slept
}

/// Pollers in [`stream`].
static STREAMING: AtomicUsize = AtomicUsize::new(0);

/// One of them, until it is dropped.
struct Streaming;

impl Streaming {
    fn begin() -> Streaming {
        STREAMING.fetch_add(1, Relaxed);
        Streaming
    }
}

impl Drop for Streaming {
    fn drop(&mut self) {
        STREAMING.fetch_sub(1, Relaxed);
    }
}

/// How many pollers are in [`stream`]: each has a thread of those that files need, too.
pub fn streaming() -> usize {
    STREAMING.load(Relaxed)
}

/// How long [`stream`] goes on before the poller's process has its turn.
const STREAM: Duration = Duration::from_millis(10);

/// Polls and waits in turn, as long as there is nothing but bulk streams, on a thread that may wait. Returns what the
/// last poll did.
///
/// To sleep by `enif_select` and wake up takes ten system calls and two threads of the VM, for each 200 KiB or so of a
/// stream that is in no hurry; here it takes one of each.
///
/// A poller that is killed meanwhile goes on until the call returns, and its messages go nowhere. So all that is here are
/// the bytes of relays; the rest, their ends included, goes to the ready list, for the next [`poll`] of whoever is the
/// poller then.
pub fn stream(env: Env, index: u16, token: u32) -> Option<Polled> {
    let pollset = pollset(index);
    let _streaming = Streaming::begin();
    let until = Instant::now() + STREAM;
    loop {
        let armed = pollset.ready.sleep(token, || {
            pollset.waiter.set(true);
            true
        });
        if armed == Sleep::Armed {
            let limit = until.saturating_duration_since(Instant::now());
            pollset.epoll.wait(Timespec { tv_sec: 0, tv_nsec: i64::from(limit.subsec_nanos()) });
        }
        let now = Instant::now();
        let polled = poll_with(env, index, token, now, Work::of_silent_poll(now))?;
        if !polled.bulk || Instant::now() >= until {
            return Some(polled);
        }
    }
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
        match self.bulk {
            true => (atoms::bulk(), self.round_ns).encode(env),
            false => (self.events, self.round_ns).encode(env),
        }
    }
}
