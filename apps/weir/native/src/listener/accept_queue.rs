//! Where connections wait for a process: the accept queues of a listener.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use rustler::{Env, LocalPid};

use crate::listener::permit::Arrival;
use crate::listener::{Listener, Template, lock};
use crate::pollset;
use crate::term::atoms;
use crate::value::arrivals::Arrivals;
use crate::value::sync::Mutex;

/// Descriptors that wait in one queue at most; those beyond wait in the backlog.
pub const MAX_WAITING: usize = 1024;

/// What has come for the processes of one scheduler. It has lines of the cache of its own, which processors fetch in pairs.
#[repr(align(128))]
pub struct AcceptQueue {
    pub pollset: u16,
    /// How many wait, for a look without the lock.
    pub length: AtomicUsize,
    /// Nothing is accepted for want of room.
    pub stalled: AtomicBool,
    pub waiting: Mutex<Waiting>,
}

#[derive(Default)]
pub struct Waiting {
    /// Is told, and starts the processes.
    pub acceptor: Option<LocalPid>,
    /// What accepted sockets are made with; none before there was a listening socket.
    pub template: Option<Arc<Template>>,
    pub arrivals: Arrivals<Arrival>,
}

/// Why somebody who comes for a connection gets none.
pub enum Missed {
    /// None waits.
    Nothing,
    /// The options that it would begin with are not those of the listener any more. The acceptor is told of it again.
    Outdated,
}

/// For whom a connection is taken.
#[derive(Clone, Copy, PartialEq)]
pub enum Taker {
    /// The calling process: it does not matter which process has started it.
    Caller,
    /// A process that the acceptor of the queue has started. A predecessor of the acceptor takes none, so the one that the acceptor
    /// has seen waiting is there until it comes for it.
    ChildOfAcceptor,
}

impl Waiting {
    /// Tells the acceptor of what it has not been told of. One that died has a successor, which is told of all.
    fn announce(&mut self, env: Env) {
        let Some(acceptor) = self.acceptor else { return };
        let untold = self.arrivals.tell();
        if untold > 0 {
            let _ = env.send(&acceptor, (atoms::weir_accept(), untold));
        }
    }
}

impl AcceptQueue {
    /// Sockets on the pollset, and those that will be.
    fn load(&self) -> i64 {
        let sockets = pollset::counters(self.pollset).sockets.load(Ordering::Relaxed);
        sockets + self.length.load(Ordering::Relaxed) as i64
    }
}

impl Listener {
    /// Makes a connection wait for a process: in this queue, or where the fewest sockets are. A listener that has ended closes it.
    pub fn push(&self, env: Env, queue: usize, arrival: Arrival) {
        let reachable = self.reachable(queue).iter();
        let Some(queue) = reachable.min_by_key(|queue| queue.load()) else {
            unreachable!("a queue reaches itself");
        };
        let refused = {
            let mut waiting = lock(&queue.waiting);
            let refused = waiting.arrivals.push(arrival);
            queue.length.store(waiting.arrivals.len(), Ordering::SeqCst);
            refused
        };
        if let Some(arrival) = refused {
            self.discard(env, arrival);
        }
    }

    /// Tells the acceptors what has come: `{weir_accept, Count}`, one message for a batch. Also those of schedulers that went
    /// offline when something had just come for them.
    pub fn announce(&self, env: Env, queue: usize) {
        for queue in self.chosen(queue) {
            lock(&queue.waiting).announce(env);
        }
    }

    /// Makes `pid` the acceptor of a queue. Returns how many connections wait there: it is not told of these again.
    pub fn set_acceptor(&self, queue: usize, pid: LocalPid) -> usize {
        let mut waiting = lock(&self.queues[queue].waiting);
        waiting.acceptor = Some(pid);
        let _ = waiting.arrivals.tell();
        waiting.arrivals.len()
    }

    /// How many connections wait in a queue.
    pub fn length(&self, queue: usize) -> usize {
        self.queues[queue].length.load(Ordering::Relaxed)
    }

    /// Takes the connection that has waited longest in a queue, for somebody who begins with this version of the options.
    pub fn pop(&self, env: Env, queue: usize, version: u64, taker: Taker) -> Result<(Arrival, Arc<Template>), Missed> {
        let queue = &self.queues[queue];
        let taken = {
            let mut waiting = lock(&queue.waiting);
            if taker == Taker::ChildOfAcceptor && waiting.acceptor != Some(env.pid()) {
                return Err(Missed::Nothing);
            }
            // One that came after a change was pushed after the new version was set, and before under this lock.
            if waiting.arrivals.len() > 0 && self.version.load(Ordering::SeqCst) != version {
                waiting.arrivals.tell_again();
                waiting.announce(env);
                return Err(Missed::Outdated);
            }
            let template = waiting.template.clone().ok_or(Missed::Nothing)?;
            let arrival = waiting.arrivals.pop().ok_or(Missed::Nothing)?;
            queue.length.store(waiting.arrivals.len(), Ordering::SeqCst);
            (arrival, template)
        };
        self.has_popped(env, queue);
        Ok(taken)
    }

    /// Goes on accepting if a queue was full and is not any more.
    fn has_popped(&self, env: Env, queue: &AcceptQueue) {
        if queue.stalled.load(Ordering::SeqCst)
            && queue.length.load(Ordering::SeqCst) <= MAX_WAITING / 2
            && queue.stalled.swap(false, Ordering::SeqCst)
        {
            self.resume(env);
        }
    }

    /// Puts a connection back in front: the process that it was for is dead.
    pub fn put_back(&self, env: Env, queue: usize, arrival: Arrival) {
        let queue = &self.queues[queue];
        let refused = {
            let mut waiting = lock(&queue.waiting);
            let refused = waiting.arrivals.put_back(arrival);
            queue.length.store(waiting.arrivals.len(), Ordering::SeqCst);
            refused
        };
        if let Some(arrival) = refused {
            self.discard(env, arrival);
        }
    }

    /// Closes the connection that has waited longest in a queue: its process could not be started.
    pub fn discard_next(&self, env: Env, queue: usize) {
        let queue = &self.queues[queue];
        let arrival = {
            let mut waiting = lock(&queue.waiting);
            let arrival = waiting.arrivals.pop();
            queue.length.store(waiting.arrivals.len(), Ordering::SeqCst);
            arrival
        };
        if let Some(arrival) = arrival {
            self.has_popped(env, queue);
            self.discard(env, arrival);
        }
    }

    /// Closes a connection that nobody will serve.
    pub fn discard(&self, env: Env, arrival: Arrival) {
        drop(arrival.fd);
        self.leave(env, arrival.address, true);
    }

    /// Ends: closes all connections that no process has, and takes no more.
    pub fn clear(&self, env: Env) {
        for queue in &self.queues {
            let left = {
                let mut waiting = lock(&queue.waiting);
                queue.length.store(0, Ordering::SeqCst);
                waiting.arrivals.close()
            };
            for arrival in left {
                self.discard(env, arrival);
            }
        }
    }

    /// The queues that what is accepted for one of them may go to: those of schedulers that are online.
    pub(super) fn reachable(&self, queue: usize) -> &[AcceptQueue] {
        let chosen = self.chosen(queue);
        &chosen[..chosen.len().min(usize::from(pollset::online::count()))]
    }

    /// The same, with those of schedulers that are offline.
    fn chosen(&self, queue: usize) -> &[AcceptQueue] {
        match self.least_loaded.load(Ordering::Relaxed) {
            true => &self.queues,
            false => &self.queues[queue..=queue],
        }
    }

    pub(super) fn has_room(queue: &AcceptQueue) -> bool {
        if queue.length.load(Ordering::SeqCst) < MAX_WAITING {
            return true;
        }
        queue.stalled.store(true, Ordering::SeqCst);
        queue.length.load(Ordering::SeqCst) < MAX_WAITING
    }
}
