//! Pollsets of processes that poll for themselves: reactors, and pollers with a pollset of their
//! own.

use std::ffi::CStr;
use std::sync::PoisonError;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU16, AtomicUsize};

use rustix::io::Errno;
use rustler::{Env, Monitor};

use crate::pollset::{Pollset, SCHEDULERS, get, make};
use crate::term::atoms;
use crate::term::resource::{Kind, Resource, ResourceArc};
use crate::value::shared::Shared;
use crate::value::sync::Mutex;

/// Maximum number of private pollsets; their numbers begin at [`SCHEDULERS`].
pub const PRIVATE: usize = 1024;

/// Settings of a reactor's pollset.
pub struct ReactorSettings {
    /// The scheduler's pollset that takes over what the reactor leaves behind; zero if the pollset
    /// has no reactor.
    pub home: AtomicU16,
    /// A peer that does not read is closed when more bytes than this wait for it.
    pub max_send_queue: AtomicUsize,
}

impl ReactorSettings {
    /// The settings of a pollset without a reactor.
    pub const fn none() -> ReactorSettings {
        ReactorSettings { home: AtomicU16::new(0), max_send_queue: AtomicUsize::new(0) }
    }

    /// Whether the pollset belongs to a reactor.
    pub fn is_reactor(&self) -> bool {
        self.home.load(Relaxed) != 0
    }
}

/// Pollsets of dead reactors that still have connections.
pub static ABANDONED: Shared<Mutex<Vec<u16>>> = Shared::new(Mutex::new(Vec::new()));

/// Free private pollsets, and the number of private pollsets made so far.
pub static VACANT: Shared<Mutex<(Vec<u16>, usize)>> = Shared::new(Mutex::new((Vec::new(), 0)));

/// Monitors the process that has a private pollset.
pub struct Holder {
    index: u16,
}

pub static HOLDER: Shared<Kind> = Shared::new(Kind::new());

impl Resource for Holder {
    const NAME: &'static CStr = c"holder";
    const WATCHES: bool = true;

    fn kind() -> &'static Shared<Kind> {
        &HOLDER
    }

    fn down(&self, env: Env, _monitor: Monitor) {
        let pollset = get(self.index);
        pollset.ready.abandon();
        if pollset.settings.is_reactor() {
            // Closing thousands of connections takes longer than a call may; `weir_reaper` does it
            // in pieces.
            ABANDONED.lock().unwrap_or_else(PoisonError::into_inner).push(self.index);
            if let Some(reaper) = env.whereis_pid(atoms::weir_reaper()) {
                let _ = env.send(&reaper, (atoms::weir_abandoned(), self.index));
            }
        } else {
            give_back(self.index);
        }
    }
}

/// Makes the calling process the poller of a private pollset until it dies. Returns the pollset's
/// number and token. Its sockets should die with the process, since they are no longer polled
/// then. EMFILE if all private pollsets are taken.
pub fn acquire(env: Env) -> rustix::io::Result<(u16, u32)> {
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
    get(index).counters.reset();
    get(index).ready.begin_anew();
    let token = get(index).ready.claim(env.pid());
    let holder = ResourceArc::new(Holder { index });
    // The calling process is alive, since it calls.
    let _ = holder.monitor(Some(env), &env.pid());
    *get(index).holder.lock().unwrap_or_else(PoisonError::into_inner) = Some(holder);
    Ok((index, token))
}

/// Makes a private pollset free again.
fn give_back(index: u16) {
    VACANT.lock().unwrap_or_else(PoisonError::into_inner).0.push(index);
}

/// The settings of a reactor's pollset.
pub fn settings(index: u16) -> &'static ReactorSettings {
    &get(index).settings
}

/// The scheduler's pollset that takes over what a reactor leaves behind.
pub fn home(index: u16) -> u16 {
    get(index).settings.home.load(Relaxed)
}

impl Pollset {
    /// The scheduler's pollset whose thread wakes the poller.
    pub fn home(&self, index: u16) -> u16 {
        if usize::from(index) < SCHEDULERS { index } else { self.settings.home.load(Relaxed).max(1) }
    }
}

/// Maximum bytes that may wait to be sent on a reactor's socket.
pub fn max_send_queue(index: u16) -> usize {
    get(index).settings.max_send_queue.load(Relaxed)
}

/// The pollsets of dead reactors that still have connections.
pub fn abandoned() -> Vec<u16> {
    ABANDONED.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Whether a pollset is one of them.
pub fn is_abandoned(index: u16) -> bool {
    ABANDONED.lock().unwrap_or_else(PoisonError::into_inner).contains(&index)
}

/// Makes the pollset of a dead reactor free again, when no connections are left on it.
pub fn reaped(index: u16) {
    let mut abandoned = ABANDONED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(at) = abandoned.iter().position(|&other| other == index) {
        abandoned.swap_remove(at);
        // Targets that were pushed in between are stale.
        get(index).ready.abandon();
        get(index).settings.home.store(0, Relaxed);
        give_back(index);
    }
}
