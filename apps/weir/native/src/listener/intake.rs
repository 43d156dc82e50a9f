//! Where connections wait for a process: the intakes of a gate.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use rustler::{Env, LocalPid};

use crate::listener::gate::{Gate, lock};
use crate::listener::ticket::Arrival;
use crate::pollset;
use crate::term::atoms;

/// Descriptors that wait in one intake at most; those beyond wait in the backlog.
pub const INTAKE: usize = 1024;

/// What has come for the processes of one scheduler.
pub struct Intake {
    pub pollset: u16,
    /// How many wait, for whoever looks without the lock.
    pub length: AtomicUsize,
    /// Nothing is accepted for want of room.
    pub stalled: AtomicBool,
    pub queue: Mutex<Queue>,
}

#[derive(Default)]
pub struct Queue {
    /// Who is told, and starts the processes.
    pub acceptor: Option<LocalPid>,
    pub arrivals: VecDeque<Arrival>,
    /// Those of them that the acceptor has not been told of.
    pub untold: usize,
}

impl Intake {
    /// Sockets on the pollset, and those that will be.
    fn load(&self) -> i64 {
        let sockets = pollset::counters(self.pollset).sockets.load(Ordering::Relaxed);
        sockets + self.length.load(Ordering::Relaxed) as i64
    }
}

impl Gate {
    /// Makes a connection wait for a process: in this intake, or where the fewest sockets are.
    pub fn push(&self, intake: usize, arrival: Arrival) {
        let reachable = self.reachable(intake).iter();
        let Some(intake) = reachable.min_by_key(|intake| intake.load()) else {
            unreachable!("an intake reaches itself");
        };
        let mut queue = lock(&intake.queue);
        queue.arrivals.push_back(arrival);
        queue.untold += 1;
        intake.length.store(queue.arrivals.len(), Ordering::SeqCst);
    }

    /// Tells the acceptors what has come: `{weir_accept, Count}`, one message for a batch.
    pub fn announce(&self, env: Env, intake: usize) {
        for intake in self.reachable(intake) {
            let mut queue = lock(&intake.queue);
            if queue.untold > 0
                && let Some(acceptor) = queue.acceptor
            {
                // One that died has a successor, which is told of all.
                let _ = env.send(&acceptor, (atoms::weir_accept(), queue.untold));
                queue.untold = 0;
            }
        }
    }

    /// Makes `pid` the acceptor of an intake. Returns how many connections wait there: it is not told of these again.
    pub fn set_acceptor(&self, intake: usize, pid: LocalPid) -> usize {
        let mut queue = lock(&self.intakes[intake].queue);
        queue.acceptor = Some(pid);
        queue.untold = 0;
        queue.arrivals.len()
    }

    /// How many connections wait in an intake.
    pub fn length(&self, intake: usize) -> usize {
        self.intakes[intake].length.load(Ordering::Relaxed)
    }

    /// Takes the connection that has waited longest in an intake.
    pub fn pop(&self, env: Env, intake: usize) -> Option<Arrival> {
        let intake = &self.intakes[intake];
        let arrival = {
            let mut queue = lock(&intake.queue);
            let arrival = queue.arrivals.pop_front()?;
            intake.length.store(queue.arrivals.len(), Ordering::SeqCst);
            arrival
        };
        if intake.stalled.load(Ordering::SeqCst)
            && intake.length.load(Ordering::SeqCst) <= INTAKE / 2
            && intake.stalled.swap(false, Ordering::SeqCst)
        {
            self.resume(env);
        }
        Some(arrival)
    }

    /// Puts a connection back in front: the process that it was for is dead.
    pub fn put_back(&self, intake: usize, arrival: Arrival) {
        let intake = &self.intakes[intake];
        let mut queue = lock(&intake.queue);
        queue.arrivals.push_front(arrival);
        intake.length.store(queue.arrivals.len(), Ordering::SeqCst);
    }

    /// Closes a connection that nobody will serve.
    pub fn discard(&self, env: Env, arrival: Arrival) {
        drop(arrival.fd);
        self.leave(env, arrival.address, true);
    }

    /// Closes all connections that no process has.
    pub fn clear(&self, env: Env) {
        for intake in 0..self.intakes.len() {
            while let Some(arrival) = self.pop(env, intake) {
                self.discard(env, arrival);
            }
        }
    }

    /// The intakes that what is accepted for one of them may go to.
    pub(super) fn reachable(&self, intake: usize) -> &[Intake] {
        match self.least_loaded.load(Ordering::Relaxed) {
            true => &self.intakes,
            false => &self.intakes[intake..=intake],
        }
    }

    pub(super) fn has_room(intake: &Intake) -> bool {
        if intake.length.load(Ordering::SeqCst) < INTAKE {
            return true;
        }
        intake.stalled.store(true, Ordering::SeqCst);
        intake.length.load(Ordering::SeqCst) < INTAKE
    }
}
