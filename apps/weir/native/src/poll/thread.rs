//! The thread of a scheduler's pollset: it wakes the poller when something is ready, and serves in its place where that is
//! better.
//!
//! A poller that is woken takes what is ready in batches that grow with the load, and its messages go to processes on its own
//! scheduler: no thread is switched for them. The thread serves where nothing comes but bulk streams, and where the poller
//! does not come. It leaves active sockets to the poller even then, for the order of their messages. A process that kills a poller
//! does not reach it. It holds no lock while it waits. A panic costs what was being served, as in a call of the VM's.

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

/// Events that the thread takes at once.
const BATCH: usize = 64;

/// Sees to it that the pollset of a scheduler is there and has its thread. Errors are those of epoll_create1(2),
/// eventfd(2) and pthread_create(3).
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
                    // The limit bounds what is lost where this fails.
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
                    // It has been in there, and needs no memory.
                    let _ = pollset.arm(index);
                }
            }
            named = false;
        };
    }
}

fn wake(env: &OwnedEnv, index: u16, poller: LocalPid) {
    add(&pollset::counters(index).wakes_by_thread, 1);
    // One that is dead has a successor that looks for itself.
    let _ = env.run(|env| env.send(&poller, atoms::weir_wake()));
}

fn serve_here(index: u16, env: &mut OwnedEnv, list: VecDeque<Target>) -> Served {
    let mut space = [const { MaybeUninit::uninit() }; BATCH];
    let events = pollset::get(index).epoll.take(&mut space);
    let served = catch_unwind(AssertUnwindSafe(|| {
        env.run(|env| {
            let now = Instant::now();
            // Reactors' sockets are not on the pollsets of schedulers.
            serve(env, index, (list, events), now, &mut Work::of_substitute(now), &mut Batch::new(env))
        })
    }));
    env.clear();
    // A panic has told of itself on standard error.
    served.unwrap_or(Served { count: 0, bulk: Bulk::No, gather: false })
}

/// Signals are the VM's.
fn block_signals() {
    let mut all = MaybeUninit::uninit();
    // SAFETY: sigfillset(3) makes the set whole, and pthread_sigmask(3) reads it.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), std::ptr::null_mut());
    }
}
