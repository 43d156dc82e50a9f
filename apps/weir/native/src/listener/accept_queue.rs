//! The accept queues of a listener: accepted connections that wait for a process.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use rustler::{Env, LocalPid};

use crate::listener::permit::Arrival;
use crate::listener::{Listener, Template, lock};
use crate::pollset;
use crate::term::atoms;
use crate::value::arrivals::Arrivals;
use crate::value::sync::Mutex;

/// Maximum connections in one queue. Further connections wait in the backlog.
pub const MAX_WAITING: usize = 1024;

/// Connections for the processes of one scheduler. Aligned to two cache lines of its own, since
/// processors fetch them in pairs.
#[repr(align(128))]
pub struct AcceptQueue {
    pub pollset: u16,
    /// Number of waiting connections, readable without the lock.
    pub length: AtomicUsize,
    /// Accepting has stopped because the queue is full.
    pub stalled: AtomicBool,
    pub waiting: Mutex<Waiting>,
}

#[derive(Default)]
pub struct Waiting {
    /// The process that is notified and starts the connection processes.
    pub acceptor: Option<LocalPid>,
    /// What accepted sockets are created with; `None` before the first listening socket.
    pub template: Option<Arc<Template>>,
    pub arrivals: Arrivals<Arrival>,
}

/// Why a process that asked for a connection gets none.
pub enum Missed {
    /// The queue is empty.
    Nothing,
    /// The caller has outdated options of the listener. The acceptor is notified again.
    Outdated,
}

/// Who takes a connection.
#[derive(Clone, Copy, PartialEq)]
pub enum Taker {
    /// The calling process, whichever process started it.
    Caller,
    /// A process that the acceptor of the queue has started. An earlier acceptor gets no
    /// connection, so those that the current one has counted stay until it takes them.
    ChildOfAcceptor,
}

impl Waiting {
    /// Notifies the acceptor of new connections. If it has died, its successor is notified of all.
    fn announce(&mut self, env: Env) {
        let Some(acceptor) = self.acceptor else { return };
        let untold = self.arrivals.tell();
        if untold > 0 {
            let _ = env.send(&acceptor, (atoms::weir_accept(), untold));
        }
    }
}

impl AcceptQueue {
    /// Number of sockets on the pollset, and of connections that will become some.
    fn load(&self) -> i64 {
        let sockets = pollset::counters(self.pollset).sockets.load(Ordering::Relaxed);
        sockets + self.length.load(Ordering::Relaxed) as i64
    }
}

impl Listener {
    /// Queues a connection: in this queue, or in the least loaded one if the listener distributes.
    /// Closes it if the listener has ended.
    pub fn push(&self, env: Env, queue: usize, arrival: Arrival) {
        let reachable = self.reachable(queue).iter();
        let Some(queue) = reachable.min_by_key(|queue| queue.load()) else {
            unreachable!("the queue itself is always reachable");
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

    /// Notifies the acceptors of new connections: `{weir_accept, Count}`, one message for a batch.
    /// Includes acceptors whose scheduler has just gone offline, since their queues may hold
    /// connections.
    pub fn announce(&self, env: Env, queue: usize) {
        for queue in self.chosen(queue) {
            lock(&queue.waiting).announce(env);
        }
    }

    /// Makes `pid` the acceptor of a queue. Returns how many connections wait there, of which it
    /// is not notified again.
    pub fn set_acceptor(&self, queue: usize, pid: LocalPid) -> usize {
        let mut waiting = lock(&self.queues[queue].waiting);
        waiting.acceptor = Some(pid);
        let _ = waiting.arrivals.tell();
        waiting.arrivals.len()
    }

    /// Number of connections in a queue.
    pub fn length(&self, queue: usize) -> usize {
        self.queues[queue].length.load(Ordering::Relaxed)
    }

    /// Takes the oldest connection of a queue, for a process that has this version of the options.
    pub fn pop(&self, env: Env, queue: usize, version: u64, taker: Taker) -> Result<(Arrival, Arc<Template>), Missed> {
        let queue = &self.queues[queue];
        let taken = {
            let mut waiting = lock(&queue.waiting);
            if taker == Taker::ChildOfAcceptor && waiting.acceptor != Some(env.pid()) {
                return Err(Missed::Nothing);
            }
            // A connection that came after a change was pushed under this lock after the version
            // was set, so this load sees the new version.
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

    /// Resumes accepting if a queue was full and is now at most half full.
    fn has_popped(&self, env: Env, queue: &AcceptQueue) {
        if queue.stalled.load(Ordering::SeqCst)
            && queue.length.load(Ordering::SeqCst) <= MAX_WAITING / 2
            && queue.stalled.swap(false, Ordering::SeqCst)
        {
            self.resume(env);
        }
    }

    /// Puts a connection back at the head of the queue, because its process is dead.
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

    /// Closes the oldest connection of a queue, because its process could not be started.
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

    /// Closes a queued connection.
    pub fn discard(&self, env: Env, arrival: Arrival) {
        drop(arrival.fd);
        self.leave(env, arrival.address, true);
    }

    /// Ends the listener: closes all queued connections, and refuses new ones.
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

    /// The queues that may get a connection that was accepted for `queue`: those of online
    /// schedulers.
    pub(super) fn reachable(&self, queue: usize) -> &[AcceptQueue] {
        let chosen = self.chosen(queue);
        &chosen[..chosen.len().min(usize::from(pollset::online::count()))]
    }

    /// The same queues, including those of offline schedulers.
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
