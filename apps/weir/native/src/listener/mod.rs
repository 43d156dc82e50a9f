//! A listener: what its listening sockets (one for each scheduler) share. It limits and counts
//! connections, and queues those that wait for a process.
//!
//! An accepted connection is a descriptor in an [`AcceptQueue`] until a process takes it. Then it
//! is a socket with a [`Permit`](permit::Permit), which the listener gets back when the socket is
//! closed. A listener outlives its listening sockets and its processes.
//!
//! Lock order: socket, listener (one of its locks at a time), ready list of a pollset.
//!
//! The verbs call accept(2) and make sockets. May use `pollset` and what is below it.

pub mod accept_queue;
pub mod permit;
pub mod sockets;

use std::os::fd::{AsFd, OwnedFd};
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use rustix::io::Errno;
use rustler::{Atom, Env, LocalPid};

use crate::kernel::{scheduler, sockopt};
use crate::listener::accept_queue::AcceptQueue;
use crate::listener::permit::Arrival;
use crate::listener::sockets::Listening;
use crate::term::atoms;
use crate::term::errno;
use crate::value::admission::{Address, Admission, Refusal};
use crate::value::counters::add;
use crate::value::latency::Latency;
use crate::value::options::Options;
use crate::value::places::Places;
use crate::value::quota::Quota;
use crate::value::sync::{Mutex, MutexGuard};

/// The limits of a listener, which can be changed later.
pub struct Settings {
    pub max_connections: u64,
    /// Reset excess connections instead of leaving them in the backlog.
    pub reset: bool,
    /// Connections go to the pollset with the fewest sockets instead of the one that accepted
    /// them.
    pub least_loaded: bool,
    /// Connection processes are bound to the schedulers of their sockets.
    pub bind: bool,
    /// Measure reply times.
    pub measure: bool,
    pub admission: Admission,
}

/// A kernel option that accepted sockets do not inherit: level, name, value.
pub type LateOption = (libc::c_int, libc::c_int, libc::c_int);

/// What accepted sockets inherit from the listening socket.
#[derive(Clone)]
pub struct Template {
    pub module: Atom,
    pub options: Options,
    pub late_options: Vec<LateOption>,
}

/// Counters of a listener.
#[derive(Default)]
pub struct Counts {
    pub overload: AtomicU64,
    pub denied: AtomicU64,
    pub crowded: AtomicU64,
    /// How often accepting was paused by the connection limit and by the rate limit.
    pub full_pauses: AtomicU64,
    pub rate_pauses: AtomicU64,
}

/// Comparisons of socket counts per second and reactor, on average. Above this rate of connections
/// the kernel spreads them evenly enough, and waking another reactor costs a quarter of a
/// connection with one request.
const COMPARISONS: u64 = 16;

/// A listener.
pub struct Listener {
    reset: AtomicBool,
    least_loaded: AtomicBool,
    bind: AtomicBool,
    /// Places of open connections, and of accept(2) calls in progress.
    places: Places,
    /// Accepting is paused by the rate limit; the owner's timer ends the pause.
    throttled: AtomicBool,
    /// Out of descriptors, and nothing has been accepted since.
    exhausted: AtomicBool,
    /// The owner's timer will start the next attempt.
    retrying: AtomicBool,
    /// Admission depends on the address or the rate, so `admission` must be asked.
    selective: AtomicBool,
    admission: Mutex<Admission>,
    /// The version of the options that connections start with. The listener's process sets it
    /// after it has notified the processes that start connections.
    version: AtomicU64,
    queues: Box<[AcceptQueue]>,
    /// The pollsets of the reactors that have a listening socket; zero for a free entry.
    reactors: Box<[AtomicU16]>,
    /// Limits how often a reactor compares its number of sockets with that of the others before it
    /// keeps a connection.
    comparisons: Quota,
    listening: Mutex<Vec<Listening>>,
    /// The process of the listener, which runs the timers.
    owner: Mutex<Option<LocalPid>>,
    pub counts: Counts,
    pub latency: Latency,
}

/// Which of the counters in `places` the caller writes to.
fn here() -> usize {
    scheduler::number().into()
}

/// Takes a lock, also a poisoned one: its holders leave nothing half done.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Listener {
    /// Creates a listener with a queue for each of the first `schedulers` pollsets.
    pub fn new(settings: Settings, schedulers: u16) -> Listener {
        let queue = |pollset| AcceptQueue {
            pollset,
            length: AtomicUsize::new(0),
            stalled: AtomicBool::new(false),
            waiting: Mutex::default(),
        };
        Listener {
            reset: AtomicBool::new(settings.reset),
            least_loaded: AtomicBool::new(settings.least_loaded),
            bind: AtomicBool::new(settings.bind),
            places: Places::new(settings.max_connections, schedulers.into()),
            throttled: AtomicBool::new(false),
            exhausted: AtomicBool::new(false),
            retrying: AtomicBool::new(false),
            selective: AtomicBool::new(!settings.admission.is_open()),
            admission: Mutex::new(settings.admission),
            version: AtomicU64::new(0),
            queues: (1..=schedulers).map(queue).collect(),
            reactors: (1..=schedulers).map(|_| AtomicU16::new(0)).collect(),
            comparisons: Quota::new(COMPARISONS * u64::from(schedulers)),
            listening: Mutex::default(),
            owner: Mutex::default(),
            counts: Counts::default(),
            latency: Latency::new(settings.measure),
        }
    }

    /// Number of queues; they are numbered from zero.
    pub fn queues(&self) -> usize {
        self.queues.len()
    }

    /// The pollset of a queue.
    pub fn pollset(&self, queue: usize) -> u16 {
        self.queues[queue].pollset
    }

    /// Whether connection processes are bound to the schedulers of their sockets.
    pub fn binds(&self) -> bool {
        self.bind.load(Ordering::Relaxed)
    }

    /// Sets the version of the options that connections must start with.
    pub fn set_version(&self, version: u64) {
        self.version.store(version, Ordering::SeqCst);
    }

    /// Number of open connections.
    pub fn connections(&self) -> u64 {
        self.places.present()
    }

    /// Number of connections accepted so far.
    pub fn accepted(&self) -> u64 {
        self.places.arrivals()
    }

    /// Number of connections that wait for a process.
    pub fn waiting(&self) -> usize {
        self.queues.iter().map(|queue| queue.length.load(Ordering::Relaxed)).sum()
    }

    pub fn max_connections(&self) -> u64 {
        self.places.max()
    }

    /// Changes the limits. Existing connections stay.
    pub fn change(&self, env: Env, settings: Settings) {
        self.reset.store(settings.reset, Ordering::SeqCst);
        self.least_loaded.store(settings.least_loaded, Ordering::SeqCst);
        self.bind.store(settings.bind, Ordering::SeqCst);
        self.places.set_max(settings.max_connections);
        self.latency.set(settings.measure);
        let selective = !settings.admission.is_open();
        lock(&self.admission).change(settings.admission);
        self.selective.store(selective, Ordering::SeqCst);
        self.throttled.store(false, Ordering::SeqCst);
        self.resume(env);
    }

    /// Whether the listener chooses the pollset of a connection, which then stays there.
    pub fn distributes(&self) -> bool {
        self.least_loaded.load(Ordering::Relaxed)
    }

    /// Makes `pid` the process that is notified of pauses that need a timer.
    pub fn set_owner(&self, pid: LocalPid) {
        *lock(&self.owner) = Some(pid);
    }

    /// Ends these pauses; the owner calls it when the time is over.
    pub fn retry(&self, env: Env) {
        self.throttled.store(false, Ordering::SeqCst);
        self.retrying.store(false, Ordering::SeqCst);
        self.resume(env);
    }

    fn tell_owner(&self, env: Env, message: impl rustler::Encoder) {
        if let Some(owner) = *lock(&self.owner) {
            // If it has died, its successor begins with a retry.
            let _ = env.send(&owner, message);
        }
    }

    /// Decides about the next connection, for a queue or for a reactor. After a pause, the event
    /// that ends it resumes accepting.
    pub fn decide(&self, env: Env, queue: Option<usize>) -> Decision {
        if queue.is_some_and(|queue| !self.reachable(queue).iter().all(Listener::has_room)) {
            return Decision::Pause;
        }
        if self.wants_address()
            && let Some(wait) = lock(&self.admission).wait(Instant::now())
        {
            if !self.throttled.swap(true, Ordering::SeqCst) {
                add(&self.counts.rate_pauses, 1);
                let milliseconds = 1 + wait.as_millis() as u64;
                self.tell_owner(env, (atoms::weir_listener(), atoms::throttled(), milliseconds));
            }
            return Decision::Pause;
        }
        if self.places.take(here()) {
            return Decision::Accept;
        }
        if self.reset.load(Ordering::Relaxed) {
            return Decision::Reset;
        }
        if self.places.take_or_wait(here()) {
            return Decision::Accept;
        }
        add(&self.counts.full_pauses, 1);
        self.forgo();
        Decision::Pause
    }

    /// Notes that accept(2) failed, for example for lack of descriptors. Accepting resumes when
    /// the owner calls [`retry`](Self::retry).
    pub fn accept_failed(&self, env: Env, errno: Errno) {
        self.exhausted.store(true, Ordering::SeqCst);
        if !self.retrying.swap(true, Ordering::SeqCst) {
            self.tell_owner(env, (atoms::weir_listener(), atoms::exhausted(), errno::atom(env, errno)));
        }
    }

    /// Whether the address of the peer is needed.
    pub fn wants_address(&self) -> bool {
        self.selective.load(Ordering::Relaxed)
    }

    /// Admits an accepted connection that has a place; or resets it, frees its place and returns
    /// `None`.
    pub fn admit(&self, env: Env, fd: OwnedFd, address: Option<Address>) -> Option<Arrival> {
        if self.exhausted.load(Ordering::Relaxed) && self.exhausted.swap(false, Ordering::Relaxed) {
            self.tell_owner(env, (atoms::weir_listener(), atoms::recovered()));
        }
        let entered = match self.wants_address() {
            true => lock(&self.admission).enter(address),
            false => Ok(false),
        };
        match entered {
            Ok(noted) => {
                self.places.count_arrival(here());
                Some(Arrival { fd, address: address.filter(|_| noted) })
            }
            Err(refusal) => {
                let count = match refusal {
                    Refusal::Denied => &self.counts.denied,
                    Refusal::Crowded => &self.counts.crowded,
                };
                add(count, 1);
                self.give_place_back(env);
                reset(fd);
                None
            }
        }
    }

    /// Gives back the rate token that [`decide`](Self::decide) took: no connection was accepted,
    /// or there was no place for it.
    pub fn forgo(&self) {
        if self.wants_address() {
            lock(&self.admission).forgo();
        }
    }

    /// Resets a connection for which there is no place.
    pub fn overload(&self, fd: OwnedFd) {
        self.forgo();
        add(&self.counts.overload, 1);
        reset(fd);
    }

    fn leave(&self, env: Env, address: Option<Address>, has_place: bool) {
        if let Some(address) = address {
            lock(&self.admission).leave(address);
        }
        self.places.count_departure(here());
        if has_place {
            self.give_place_back(env);
        }
    }

    /// Frees the place of a connection, or one that was taken without one.
    pub fn give_place_back(&self, env: Env) {
        if self.places.give(here()) {
            self.resume(env);
        }
    }
}

/// What to do with the next connection.
pub enum Decision {
    /// Accept it; it has a place.
    Accept,
    /// Accept and reset it.
    Reset,
    /// Leave it in the backlog.
    Pause,
}

/// Closes a connection with a reset, so that its peer knows that it was not served.
fn reset(fd: OwnedFd) {
    let on = libc::linger { l_onoff: 1, l_linger: 0 };
    let _ = sockopt::set(fd.as_fd(), libc::SOL_SOCKET, libc::SO_LINGER, &on);
    drop(fd);
}
