//! Where connections wait for a process: the accept queues of a listener.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use rustler::{Env, LocalPid};

use crate::listener::permit::Arrival;
use crate::listener::{Listener, lock};
use crate::pollset;
use crate::term::atoms;
use crate::value::sync::Mutex;

/// Descriptors that wait in one queue at most; those beyond wait in the backlog.
pub const MAX_WAITING: usize = 1024;

/// What has come for the processes of one scheduler.
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
    pub arrivals: VecDeque<Arrival>,
    /// Those of them that the acceptor has not been told of.
    pub untold: usize,
}

impl AcceptQueue {
    /// Sockets on the pollset, and those that will be.
    fn load(&self) -> i64 {
        let sockets = pollset::counters(self.pollset).sockets.load(Ordering::Relaxed);
        sockets + self.length.load(Ordering::Relaxed) as i64
    }
}

impl Listener {
    /// Makes a connection wait for a process: in this queue, or where the fewest sockets are.
    pub fn push(&self, queue: usize, arrival: Arrival) {
        let reachable = self.reachable(queue).iter();
        let Some(queue) = reachable.min_by_key(|queue| queue.load()) else {
            unreachable!("a queue reaches itself");
        };
        let mut waiting = lock(&queue.waiting);
        waiting.arrivals.push_back(arrival);
        waiting.untold += 1;
        queue.length.store(waiting.arrivals.len(), Ordering::SeqCst);
    }

    /// Tells the acceptors what has come: `{weir_accept, Count}`, one message for a batch.
    pub fn announce(&self, env: Env, queue: usize) {
        for queue in self.reachable(queue) {
            let mut waiting = lock(&queue.waiting);
            if waiting.untold > 0
                && let Some(acceptor) = waiting.acceptor
            {
                // One that died has a successor, which is told of all.
                let _ = env.send(&acceptor, (atoms::weir_accept(), waiting.untold));
                waiting.untold = 0;
            }
        }
    }

    /// Makes `pid` the acceptor of a queue. Returns how many connections wait there: it is not told of these again.
    pub fn set_acceptor(&self, queue: usize, pid: LocalPid) -> usize {
        let mut waiting = lock(&self.queues[queue].waiting);
        waiting.acceptor = Some(pid);
        waiting.untold = 0;
        waiting.arrivals.len()
    }

    /// How many connections wait in a queue.
    pub fn length(&self, queue: usize) -> usize {
        self.queues[queue].length.load(Ordering::Relaxed)
    }

    /// Takes the connection that has waited longest in a queue.
    pub fn pop(&self, env: Env, queue: usize) -> Option<Arrival> {
        let queue = &self.queues[queue];
        let arrival = {
            let mut waiting = lock(&queue.waiting);
            let arrival = waiting.arrivals.pop_front()?;
            queue.length.store(waiting.arrivals.len(), Ordering::SeqCst);
            arrival
        };
        if queue.stalled.load(Ordering::SeqCst)
            && queue.length.load(Ordering::SeqCst) <= MAX_WAITING / 2
            && queue.stalled.swap(false, Ordering::SeqCst)
        {
            self.resume(env);
        }
        Some(arrival)
    }

    /// Puts a connection back in front: the process that it was for is dead.
    pub fn put_back(&self, queue: usize, arrival: Arrival) {
        let queue = &self.queues[queue];
        let mut waiting = lock(&queue.waiting);
        waiting.arrivals.push_front(arrival);
        queue.length.store(waiting.arrivals.len(), Ordering::SeqCst);
    }

    /// Closes a connection that nobody will serve.
    pub fn discard(&self, env: Env, arrival: Arrival) {
        drop(arrival.fd);
        self.leave(env, arrival.address, true);
    }

    /// Closes all connections that no process has.
    pub fn clear(&self, env: Env) {
        for queue in 0..self.queues.len() {
            while let Some(arrival) = self.pop(env, queue) {
                self.discard(env, arrival);
            }
        }
    }

    /// The queues that what is accepted for one of them may go to.
    pub(super) fn reachable(&self, queue: usize) -> &[AcceptQueue] {
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
