//! Wakes a process at a time in nanoseconds. Timers of the VM have a resolution of milliseconds.
//!
//! A thread waits on a condition variable with a deadline, then sends a message. It is not a
//! scheduler of the VM, so it may block and may send with its own environment. It ends when its
//! alarm is dropped.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustler::{Encoder, LocalPid, OwnedEnv};

mod atoms {
    rustler::atoms! { weir_load_alarm }
}

/// An alarm of one process.
pub struct Alarm(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Clone, Copy)]
enum State {
    Idle,
    At(Instant),
    Dropped,
}

impl Alarm {
    /// Starts the thread, which sends `weir_load_alarm` to the process.
    pub fn start(pid: LocalPid) -> std::io::Result<Self> {
        let shared = Arc::new(Shared { state: Mutex::new(State::Idle), changed: Condvar::new() });
        let ours = Arc::clone(&shared);
        thread::Builder::new().name("weir_load_alarm".into()).spawn(move || ours.run(pid))?;
        Ok(Self(shared))
    }

    /// Sends one message after `wait`. Replaces an earlier setting that has not gone off.
    pub fn set(&self, wait: Duration) {
        *self.0.lock() = State::At(Instant::now() + wait);
        self.0.changed.notify_one();
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        *self.0.lock() = State::Dropped;
        self.0.changed.notify_one();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self, pid: LocalPid) {
        let mut state = self.lock();
        loop {
            state = match *state {
                State::Dropped => return,
                State::Idle => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
                State::At(deadline) => match deadline.checked_duration_since(Instant::now()) {
                    Some(wait) if !wait.is_zero() => {
                        self.changed.wait_timeout(state, wait).unwrap_or_else(PoisonError::into_inner).0
                    }
                    _ => {
                        *state = State::Idle;
                        drop(state);
                        // Fails if the process is gone.
                        let _ = OwnedEnv::new().send_and_clear(&pid, |env| atoms::weir_load_alarm().encode(env));
                        self.lock()
                    }
                },
            };
        }
    }
}
