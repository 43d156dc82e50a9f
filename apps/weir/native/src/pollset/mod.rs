//! A pollset: one epoll instance and its ready list, for one scheduler or one process.
//!
//! It knows what is waited on by its number only; the layer `poll` knows who is served when that is ready. Here a pollset is
//! made and claimed by its poller; [`sleeper`] says how those who serve it wait and are woken, [`online`] which of them get
//! something to do, [`private`] has the pollsets of processes that poll for themselves. May use `term`, `kernel` and `value`.

pub mod online;
pub mod private;
pub mod sleeper;

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::time::Instant;

use rustler::{Env, LocalPid};

use self::sleeper::Watch;
pub use self::sleeper::push_ready;
use crate::kernel::epoll::{BATCH, Epoll};
use crate::kernel::scheduler;
use crate::pollset::private::{Holder, PRIVATE, ReactorSettings};
use crate::term::resource::ResourceArc;
use crate::value::counters::{Counters, add};
use crate::value::ready::{Ready, Taken};
use crate::value::shared::Shared;
use crate::value::sync::Mutex;

/// Pollsets of schedulers that there can be: the VM has 1024 of those at most, numbered from one.
pub const SCHEDULERS: usize = 1025;

/// A pollset outlives its pollers: it is made when its scheduler's first poller asks for it, and never freed. One that a
/// process had for itself is given to another when that process is gone.
pub struct Pollset {
    pub epoll: Epoll,
    pub ready: Ready<LocalPid>,
    /// What the thread of a scheduler's pollset waits for; processes that poll for themselves have no thread.
    watch: Option<Watch>,
    /// The pollset whose watch has the epoll instance.
    watched_by: Mutex<Option<u16>>,
    /// It has a thread; see [`poll::thread`](crate::poll::thread).
    pub threaded: AtomicBool,
    pub counters: Counters,
    /// As many sockets as a poll is likely to have time for.
    pub fits: AtomicUsize,
    /// What watches the process that has a private pollset. The monitor ends with this.
    holder: Mutex<Option<ResourceArc<Holder>>>,
    settings: ReactorSettings,
}

pub static ALL: Shared<[OnceLock<Pollset>; SCHEDULERS + PRIVATE]> =
    Shared::new([const { OnceLock::new() }; SCHEDULERS + PRIVATE]);

/// The pollset with a number that was checked when the socket or the poller got it.
pub fn get(index: u16) -> &'static Pollset {
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
    &get(index).epoll
}

/// What the thread of a scheduler's pollset waits for.
pub fn watch(index: u16) -> &'static Watch {
    match &get(index).watch {
        Some(watch) => watch,
        None => unreachable!("pollset {index} is no scheduler's"),
    }
}

/// The counters for what is done to a socket of a pollset. Of a scheduler's they are those of the calling scheduler, which no
/// other one writes to.
pub fn counters_near(index: u16) -> &'static Counters {
    let here = scheduler::current().filter(|&here| usize::from(index) < SCHEDULERS && exists(here));
    counters(here.unwrap_or(index))
}

/// The counters of a pollset.
pub fn counters(index: u16) -> &'static Counters {
    &get(index).counters
}

/// Whether the poller of a pollset sleeps, and nobody has woken it. A hint: it may have changed by now.
pub fn rests(index: u16) -> bool {
    get(index).ready.rests()
}

/// Makes the calling process the poller of a pollset, which is made if there is none. Returns its token.
/// The poller before it is one no longer.
pub fn claim(env: Env, index: u16) -> rustix::io::Result<u32> {
    make(index)?;
    Ok(get(index).ready.claim(env.pid()))
}

/// Whether a process is the poller of a pollset.
pub fn is_polled_by(index: u16, pid: LocalPid) -> bool {
    get(index).ready.is_polled_by(pid)
}

/// The poller of a pollset.
pub fn poller(index: u16) -> Option<LocalPid> {
    get(index).ready.poller()
}

/// The processes that poll.
pub fn pollers() -> Vec<LocalPid> {
    ALL.iter().filter_map(|pollset| pollset.get()?.ready.poller()).collect()
}

/// Makes a pollset, if there is none (epoll_create1(2) and eventfd(2): EMFILE, ENFILE, ENOMEM).
pub fn make(index: u16) -> rustix::io::Result<()> {
    let cell = &ALL[usize::from(index)];
    if cell.get().is_none() {
        let made = Pollset {
            epoll: Epoll::new()?,
            ready: Ready::new(),
            watch: if usize::from(index) < SCHEDULERS { Some(Watch::new()?) } else { None },
            watched_by: Mutex::new(None),
            threaded: AtomicBool::new(false),
            counters: Counters::default(),
            fits: AtomicUsize::new(BATCH),
            holder: Mutex::new(None),
            settings: ReactorSettings::none(),
        };
        // Somebody else may have been faster; then ours is dropped.
        let _ = cell.set(made);
    }
    Ok(())
}

impl Pollset {
    /// Takes the ready list for a poll that begins `now`. Nothing if the token is not the poller's any more.
    pub fn take(&self, token: u32, now: Instant) -> Option<Taken> {
        let taken = self.ready.take(token, now)?;
        if let Some(slept) = taken.slept {
            add(&self.counters.asleep_ns, slept.as_nanos() as u64);
        }
        Some(taken)
    }

    /// Notes when a poll ended, and whether it has served nothing but streams.
    pub fn polled(&self, end: Instant, streams: bool) {
        self.ready.polled(end, streams);
    }
}
