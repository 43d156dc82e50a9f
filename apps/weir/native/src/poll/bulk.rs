//! Polling and waiting in turn, for bulk streams.

use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use rustler::Env;

use super::{Polled, poll_with};
use crate::pollset;
use crate::value::shared::Shared;
use crate::value::work::Work;

/// Pollers in [`stream`].
pub static STREAMING: Shared<AtomicUsize> = Shared::new(AtomicUsize::new(0));

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
/// the bytes of relays; the rest, their ends included, goes to the ready list, for the next [`poll`](super::poll) of
/// whoever is the poller then.
pub fn stream(env: Env, index: u16, token: u32) -> Option<Polled> {
    let pollset = pollset::get(index);
    let _streaming = Streaming::begin();
    let until = Instant::now() + STREAM;
    loop {
        pollset.wait(token, until.saturating_duration_since(Instant::now()));
        let now = Instant::now();
        let polled = poll_with(env, index, token, now, Work::of_silent_poll(now))?;
        if !polled.bulk || Instant::now() >= until {
            return Some(polled);
        }
    }
}
