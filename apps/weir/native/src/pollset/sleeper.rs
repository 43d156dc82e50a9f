//! How the poller of a pollset sleeps, and how it is woken.

use std::time::Duration;

use rustix::event::Timespec;
use rustler::Env;
use rustler::sys::{ERL_NIF_SELECT_READ, enif_select};

use crate::pollset::{Pollset, get};
use crate::term::atoms;
use crate::value::counters::add;
use crate::value::handle::Target;
use crate::value::ready::Sleep;

/// Puts a target on the ready list, and wakes the poller if it sleeps.
pub fn push_ready(env: Env, index: u16, target: Target) {
    let pollset = get(index);
    pollset.ready.push(target, |poller| {
        // A message costs a process less, but does not go out of a dirty call of a process that was killed.
        if pollset.waiter.waits() || env.send(&poller, atoms::weir_wake()).is_err() {
            pollset.waiter.wake();
        }
    });
}

/// Lets the poller sleep. `armed` says that the VM still watches for an earlier sleep.
pub fn sleep(env: Env, index: u16, token: u32, armed: bool) -> Sleep {
    let pollset = get(index);
    let slept = pollset.ready.sleep(token, || {
        pollset.waiter.set(false);
        armed || watch(env, pollset)
    });
    if slept == Sleep::Armed {
        add(&pollset.counters.sleeps, 1);
    }
    slept
}

impl Pollset {
    /// Waits in the kernel until something is ready, for `limit` at most, on a thread that may wait.
    pub fn wait(&self, token: u32, limit: Duration) {
        let armed = self.ready.sleep(token, || {
            self.waiter.set(true);
            true
        });
        if armed == Sleep::Armed {
            self.epoll.wait(Timespec { tv_sec: 0, tv_nsec: i64::from(limit.subsec_nanos()) });
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
