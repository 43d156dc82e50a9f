//! Wakes a process at a nanosecond, where the VM's timers know milliseconds.
//!
//! A thread waits on a condition with a deadline and sends. It is no scheduler of the VM, so that it may wait and may
//! send with an environment of its own. It ends when its alarm is dropped.

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

    /// One message in so long; what was set before is forgotten.
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
                        // Who is gone needs no waking.
                        let _ = OwnedEnv::new().send_and_clear(&pid, |env| atoms::weir_load_alarm().encode(env));
                        self.lock()
                    }
                },
            };
        }
    }
}
