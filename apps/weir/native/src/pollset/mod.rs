//! A pollset: an epoll instance and a ready list, for one scheduler or one process.
//!
//! It knows its targets only by number; the layer `poll` serves them. This module makes pollsets
//! and gives them to pollers. [`sleeper`]: how pollers wait and are woken; [`online`]: which
//! pollsets get new sockets; [`private`]: pollsets of processes that poll for themselves. May use
//! `term`, `kernel` and `value`.

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

/// Pollsets of schedulers, numbered from 1: the VM has at most 1024 schedulers.
pub const SCHEDULERS: usize = 1025;

/// A pollset outlives its pollers: it is made when its scheduler's first poller claims it, and
/// never freed. A private pollset is reused when its process has died.
pub struct Pollset {
    pub epoll: Epoll,
    pub ready: Ready<LocalPid>,
    /// What the thread of a scheduler's pollset waits on; `None` for a private pollset, which has
    /// no thread.
    watch: Option<Watch>,
    /// The pollset whose watch contains this epoll instance.
    watched_by: Mutex<Option<u16>>,
    /// Its thread is running; see [`poll::thread`](crate::poll::thread).
    pub threaded: AtomicBool,
    pub counters: Counters,
    /// Number of sockets that a poll probably has time for.
    pub fits: AtomicUsize,
    /// Monitors the process of a private pollset. Dropping it ends the monitor.
    holder: Mutex<Option<ResourceArc<Holder>>>,
    settings: ReactorSettings,
}

pub static ALL: Shared<[OnceLock<Pollset>; SCHEDULERS + PRIVATE]> =
    Shared::new([const { OnceLock::new() }; SCHEDULERS + PRIVATE]);

/// The pollset of a number that was checked before.
pub fn get(index: u16) -> &'static Pollset {
    match ALL[usize::from(index)].get() {
        Some(pollset) => pollset,
        None => unreachable!("pollset {index} was never made"),
    }
}

/// Whether the pollset exists.
pub fn exists(index: u16) -> bool {
    ALL.get(usize::from(index)).is_some_and(|pollset| pollset.get().is_some())
}

/// The epoll instance of a pollset.
pub fn epoll(index: u16) -> &'static Epoll {
    &get(index).epoll
}

/// The watch of a scheduler's pollset.
pub fn watch(index: u16) -> &'static Watch {
    match &get(index).watch {
        Some(watch) => watch,
        None => unreachable!("pollset {index} does not belong to a scheduler"),
    }
}

/// The counters for work on a socket of a pollset. For a scheduler's pollset these are the
/// counters of the calling scheduler, to which only that scheduler writes.
pub fn counters_near(index: u16) -> &'static Counters {
    let here = scheduler::current().filter(|&here| usize::from(index) < SCHEDULERS && exists(here));
    counters(here.unwrap_or(index))
}

/// The counters of a pollset.
pub fn counters(index: u16) -> &'static Counters {
    &get(index).counters
}

/// Whether the poller of a pollset sleeps and has not been woken. A hint: it may be outdated.
pub fn rests(index: u16) -> bool {
    get(index).ready.rests()
}

/// Makes the calling process the poller of a pollset, and creates the pollset if necessary.
/// Returns the new token; that of the previous poller becomes invalid.
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

/// All pollers.
pub fn pollers() -> Vec<LocalPid> {
    ALL.iter().filter_map(|pollset| pollset.get()?.ready.poller()).collect()
}

/// Creates a pollset, unless it exists (epoll_create1(2) and eventfd(2): EMFILE, ENFILE, ENOMEM).
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
        // If another thread was faster, ours is dropped.
        let _ = cell.set(made);
    }
    Ok(())
}

impl Pollset {
    /// Takes the ready list for a poll that begins at `now`. `None` if the token is no longer
    /// valid.
    pub fn take(&self, token: u32, now: Instant) -> Option<Taken> {
        let taken = self.ready.take(token, now)?;
        if let Some(slept) = taken.slept {
            add(&self.counters.asleep_ns, slept.as_nanos() as u64);
        }
        Some(taken)
    }

    /// Notes when a poll ended, and whether it served only bulk streams.
    pub fn polled(&self, end: Instant, streams: bool) {
        self.ready.polled(end, streams);
    }
}
