//! A listener: what its listening sockets, one for each scheduler, have in common. It limits how many connections come in,
//! counts them, and keeps those that wait for a process.
//!
//! A connection that comes in is a descriptor in an [`AcceptQueue`] until a process takes it. Then it is a socket with a
//! [`Permit`](permit::Permit), which goes back to the listener when the socket is closed. A listener outlives its listening
//! sockets and its processes.
//!
//! Locks are taken in the order socket, listener (one of its locks at a time), ready list of a pollset.
//!
//! Calling accept(2) and making sockets is the business of a verb. May use `pollset` and what is below it.

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

/// What a listener is made with, and what may change later.
pub struct Settings {
    pub max_connections: u64,
    /// Connections beyond that are reset instead of left in the backlog.
    pub reset: bool,
    /// A connection goes to the pollset with the fewest sockets instead of the one that accepted it.
    pub least_loaded: bool,
    /// The processes of connections are bound to the schedulers of their sockets.
    pub bind: bool,
    /// Times of replies are measured.
    pub measure: bool,
    pub admission: Admission,
}

/// An option of the kernel that does not come with the descriptor: level, name, value.
pub type LateOption = (libc::c_int, libc::c_int, libc::c_int);

/// What accepted sockets have from the listening one.
#[derive(Clone)]
pub struct Template {
    pub module: Atom,
    pub options: Options,
    pub late_options: Vec<LateOption>,
}

/// What a listener has done.
#[derive(Default)]
pub struct Counts {
    pub overload: AtomicU64,
    pub denied: AtomicU64,
    pub crowded: AtomicU64,
    /// How often accepting has stopped for a limit: that of connections, and that of the rate.
    pub full_pauses: AtomicU64,
    pub rate_pauses: AtomicU64,
}

/// Connections of each reactor in a second, on average, for which the numbers of sockets are compared. The kernel spreads more than that
/// evenly by itself, and to wake another reactor costs a quarter of what a connection with one request does.
const COMPARISONS: u64 = 16;

/// A listener.
pub struct Listener {
    reset: AtomicBool,
    least_loaded: AtomicBool,
    bind: AtomicBool,
    /// Of connections that have come in and are not closed, and of accept(2) while it is tried.
    places: Places,
    /// Accepting waits for the rate, and the owner sees to the end of that.
    throttled: AtomicBool,
    /// Descriptors have run out and nothing has been accepted since.
    exhausted: AtomicBool,
    /// The owner sees to another try.
    retrying: AtomicBool,
    /// Not everybody may come in at any time: `admission` is asked.
    selective: AtomicBool,
    admission: Mutex<Admission>,
    /// Of the options that connections begin with. Its process sets it when those that begin connections have been told.
    version: AtomicU64,
    queues: Box<[AcceptQueue]>,
    /// The pollsets of the reactors that have a listening socket each; zero where there is none.
    reactors: Box<[AtomicU16]>,
    /// Whether a reactor compares its number of sockets with that of the others before it keeps a connection.
    comparisons: Quota,
    listening: Mutex<Vec<Listening>>,
    /// The process of the listener, which has the clock.
    owner: Mutex<Option<LocalPid>>,
    pub counts: Counts,
    pub latency: Latency,
}

/// Which of the places' words the caller writes to.
fn here() -> usize {
    scheduler::number().into()
}

/// Takes a lock whose holder cannot have left anything half done.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Listener {
    /// A listener with a queue for each of the first `schedulers` pollsets.
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

    /// How many queues there are, numbered from zero.
    pub fn queues(&self) -> usize {
        self.queues.len()
    }

    /// The pollset whose connections a queue holds.
    pub fn pollset(&self, queue: usize) -> u16 {
        self.queues[queue].pollset
    }

    /// Whether the processes of connections are bound to the schedulers of their sockets.
    pub fn binds(&self) -> bool {
        self.bind.load(Ordering::Relaxed)
    }

    /// From now on connections begin with these options, and not with others.
    pub fn set_version(&self, version: u64) {
        self.version.store(version, Ordering::SeqCst);
    }

    /// Those that have come in and are not closed.
    pub fn connections(&self) -> u64 {
        self.places.present()
    }

    /// Those that have come in.
    pub fn accepted(&self) -> u64 {
        self.places.arrivals()
    }

    /// Connections that no process has yet.
    pub fn waiting(&self) -> usize {
        self.queues.iter().map(|queue| queue.length.load(Ordering::Relaxed)).sum()
    }

    pub fn max_connections(&self) -> u64 {
        self.places.max()
    }

    /// Has other limits hold from now on. Connections that are there stay.
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

    /// Whether it says itself which pollset a connection goes to. It stays there then.
    pub fn distributes(&self) -> bool {
        self.least_loaded.load(Ordering::Relaxed)
    }

    /// Makes `pid` the process that is told of pauses which only time ends.
    pub fn set_owner(&self, pid: LocalPid) {
        *lock(&self.owner) = Some(pid);
    }

    /// Ends the pauses that only time ends: the owner says so.
    pub fn retry(&self, env: Env) {
        self.throttled.store(false, Ordering::SeqCst);
        self.retrying.store(false, Ordering::SeqCst);
        self.resume(env);
    }

    fn tell_owner(&self, env: Env, message: impl rustler::Encoder) {
        if let Some(owner) = *lock(&self.owner) {
            // One that died has a successor, which begins with a retry.
            let _ = env.send(&owner, message);
        }
    }

    /// Whether a connection may be accepted now, for a queue or without one. If not, what ends the pause resumes.
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

    /// The kernel gives no descriptor, or has another reason. Accepting goes on when the owner says so.
    pub fn accept_failed(&self, env: Env, errno: Errno) {
        self.exhausted.store(true, Ordering::SeqCst);
        if !self.retrying.swap(true, Ordering::SeqCst) {
            self.tell_owner(env, (atoms::weir_listener(), atoms::exhausted(), errno::atom(env, errno)));
        }
    }

    /// Whether the addresses of peers matter.
    pub fn wants_address(&self) -> bool {
        self.selective.load(Ordering::Relaxed)
    }

    /// Lets an accepted connection in, which has its place; or resets it and gives the place back.
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

    /// There was no connection to accept, or no place for it: the token of the rate that [`decide`](Self::decide) took is given back.
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

    /// Gives back a place that was taken, for nothing or by a connection.
    pub fn give_place_back(&self, env: Env) {
        if self.places.give(here()) {
            self.resume(env);
        }
    }
}

/// What to do about the next connection.
pub enum Decision {
    /// Accept it: it has a place.
    Accept,
    /// Accept it to reset it.
    Reset,
    /// Leave it in the backlog.
    Pause,
}

/// Closes a connection so that its peer knows it was not served.
fn reset(fd: OwnedFd) {
    let on = libc::linger { l_onoff: 1, l_linger: 0 };
    let _ = sockopt::set(fd.as_fd(), libc::SOL_SOCKET, libc::SO_LINGER, &on);
    drop(fd);
}
