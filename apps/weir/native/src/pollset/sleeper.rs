//! How pollers and threads wait, and how they are woken.
//!
//! The poller sleeps in `receive`. Meanwhile the epoll instance of its pollset is armed in a
//! second epoll instance, the watch, which reports once when something is ready. The thread of a
//! scheduler's pollset waits on the watch, and sends the poller a message. A process that polls
//! for itself is woken by the thread of its home.

use std::sync::PoisonError;
use std::time::Duration;

use rustix::event::epoll::Event;
use rustler::Env;

use crate::kernel::epoll::Epoll;
use crate::kernel::waker::Waker;
use crate::pollset::{Pollset, get, watch};
use crate::term::atoms;
use crate::value::counters::add;
use crate::value::handle::Target;
use crate::value::ready::{Sleep, Wake};

/// The epoll instance on which the thread of a scheduler's pollset waits, and its waker.
pub struct Watch {
    epoll: Epoll,
    waker: Waker,
}

impl Watch {
    /// An empty watch (epoll_create1(2), eventfd(2) and epoll_ctl(2): EMFILE, ENFILE, ENOMEM,
    /// ENOSPC).
    pub fn new() -> rustix::io::Result<Watch> {
        let epoll = Epoll::new()?;
        Ok(Watch { waker: Waker::new(&epoll)?, epoll })
    }

    /// Waits up to `limit`, until a pollset is ready or the waker is used.
    pub fn wait<'a>(
        &self,
        space: &'a mut [std::mem::MaybeUninit<Event>],
        limit: Option<Duration>,
    ) -> impl Iterator<Item = u16> + use<'a> {
        self.epoll.wait(space, limit).iter().filter_map(|event| match Target::from_raw(event.data.u64()) {
            Some(Target::Pollset(index)) => Some(index),
            _ => None,
        })
    }
}

/// Puts a target on the ready list, and wakes the thread or the poller if both wait.
pub fn push_ready(env: Env, index: u16, target: Target) {
    let pollset = get(index);
    match pollset.ready.push(target) {
        Wake::Nobody => {}
        Wake::Thread => watch(index).waker.wake(),
        // If it has died, its successor looks at the pollset anyway.
        Wake::Poller(poller) => {
            add(&pollset.counters.wakes_by_process, 1);
            let _ = env.send(&poller, atoms::weir_wake());
        }
    }
}

/// Wakes the poller of a pollset, if it sleeps.
pub fn summon(env: Env, index: u16) {
    if let Some(poller) = get(index).ready.summon() {
        add(&get(index).counters.wakes_by_thread, 1);
        let _ = env.send(&poller, atoms::weir_wake());
    }
}

/// Lets the poller sleep until it gets the message `weir_wake`. With only bulk streams, the thread
/// serves in the meantime.
pub fn sleep(index: u16, token: u32, bulk: bool) -> Sleep {
    let pollset = get(index);
    let slept = pollset.ready.sleep(token, bulk, || pollset.arm(index));
    if slept == Sleep::Asleep {
        add(&pollset.counters.sleeps, 1);
    }
    slept
}

impl Pollset {
    /// Arms a report to the thread of the home when something is ready: one report. False if the
    /// kernel refuses (ENOMEM, ENOSPC).
    pub fn arm(&self, index: u16) -> bool {
        let home = self.home(index);
        let mut watched_by = self.watched_by.lock().unwrap_or_else(PoisonError::into_inner);
        if *watched_by == Some(home) {
            return watch(home).epoll.arm(&self.epoll, Target::Pollset(index)).is_ok();
        }
        if let Some(former) = *watched_by {
            let _ = watch(former).epoll.delete_instance(&self.epoll);
        }
        let added = watch(home).epoll.add_instance(&self.epoll, Target::Pollset(index)).is_ok();
        *watched_by = added.then_some(home);
        added
    }
}
