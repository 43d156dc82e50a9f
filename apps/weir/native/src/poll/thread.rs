//! The thread of a scheduler's pollset: it wakes the poller when something is ready, and in some
//! cases serves in its place.
//!
//! A woken poller takes ready targets in batches that grow with the load, and sends messages to
//! processes on its own scheduler, without switching threads. The thread serves in two cases: if
//! there are only bulk streams, and if the poller does not come. Even then it leaves active
//! sockets to the poller, to keep their messages in order. Killing the poller does not affect the
//! thread. It holds no lock while it waits. A panic loses only the target being served, as in a
//! call of the VM.

use std::collections::VecDeque;
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use rustix::io::Errno;
use rustler::{LocalPid, OwnedEnv};

use super::{Bulk, Served, serve};
use crate::pollset;
use crate::pollset::sleeper::summon;
use crate::reactor::Batch;
use crate::term::atoms;
use crate::value::counters::add;
use crate::value::handle::Target;
use crate::value::ready::Duty;
use crate::value::work::Work;

/// Maximum events per turn of the thread.
const BATCH: usize = 64;

/// Creates the pollset of a scheduler and its thread, unless they exist. Errors are those of
/// epoll_create1(2), eventfd(2) and pthread_create(3).
pub fn start(index: u16) -> rustix::io::Result<()> {
    pollset::make(index)?;
    let threaded = &pollset::get(index).threaded;
    if !threaded.swap(true, Relaxed) {
        let thread = std::thread::Builder::new().name(format!("weir_{index}"));
        if let Err(error) = thread.spawn(move || run(index)) {
            threaded.store(false, Relaxed);
            return Err(Errno::from_io_error(&error).unwrap_or(Errno::AGAIN));
        }
    }
    Ok(())
}

fn run(index: u16) {
    block_signals();
    let (pollset, watch) = (pollset::get(index), pollset::watch(index));
    let mut env = OwnedEnv::new();
    let mut limit = None;
    loop {
        let mut space = [const { MaybeUninit::uninit() }; BATCH];
        let mut named = false;
        for other in watch.wait(&mut space, limit) {
            match other == index {
                true => named = true,
                false => env.run(|env| summon(env, other)),
            }
        }
        limit = loop {
            match pollset.ready.duty(named, Instant::now()) {
                Duty::Rest(limit) => break limit,
                Duty::Gather(time) => {
                    add(&pollset.counters.gathers, 1);
                    std::thread::sleep(time);
                    continue;
                }
                Duty::Watch(limit) => {
                    // If this fails, the limit bounds the delay.
                    let _ = pollset.arm(index);
                    break Some(limit);
                }
                Duty::Summon(poller) => wake(&env, index, poller),
                Duty::Serve(list) => {
                    let served = serve_here(index, &mut env, list);
                    if served.count > 0
                        && served.bulk != Bulk::Relays
                        && let Some(poller) = pollset.ready.resign()
                    {
                        wake(&env, index, poller);
                    }
                    // The epoll instance is already in the watch, so this needs no memory and
                    // cannot fail.
                    let _ = pollset.arm(index);
                }
            }
            named = false;
        };
    }
}

fn wake(env: &OwnedEnv, index: u16, poller: LocalPid) {
    add(&pollset::counters(index).wakes_by_thread, 1);
    // If it has died, its successor looks at the pollset anyway.
    let _ = env.run(|env| env.send(&poller, atoms::weir_wake()));
}

fn serve_here(index: u16, env: &mut OwnedEnv, list: VecDeque<Target>) -> Served {
    let mut space = [const { MaybeUninit::uninit() }; BATCH];
    let events = pollset::get(index).epoll.take(&mut space);
    let served = catch_unwind(AssertUnwindSafe(|| {
        env.run(|env| {
            let now = Instant::now();
            // A scheduler's pollset has no sockets of reactors.
            serve(env, index, (list, events), now, &mut Work::of_substitute(now), &mut Batch::new(env))
        })
    }));
    env.clear();
    // The panic has been reported on standard error.
    served.unwrap_or(Served { count: 0, bulk: Bulk::No, gather: false })
}

/// Blocks all signals in this thread; they are for the VM's threads.
fn block_signals() {
    let mut all = MaybeUninit::uninit();
    // SAFETY: sigfillset(3) initialises the set, and pthread_sigmask(3) reads it.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), std::ptr::null_mut());
    }
}
