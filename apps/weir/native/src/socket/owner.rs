//! Monitors of processes, and the processes that monitor sockets.

use rustler::{Env, LocalPid, Monitor, OwnedEnv, Term, env::SavedTerm};

use crate::term::resource::ResourceArc;
use crate::value::handle::{Handle, Target};

/// The resource that the VM's monitors belong to: one for each socket, relay and group. The layer
/// `poll`, which knows them all, handles the deaths.
pub struct DeathWatch {
    pub target: Target,
}

impl DeathWatch {
    /// Monitors the calling process, for something that it creates.
    pub fn of_caller(env: Env, target: Target) -> ResourceArc<DeathWatch> {
        let watch = ResourceArc::new(DeathWatch { target });
        // The calling process is alive, since it calls.
        let _ = watch.monitor(Some(env), &env.pid());
        watch
    }

    /// Monitors a process. `None` if it is dead.
    pub fn of(env: Env, pid: &LocalPid, target: Target) -> Option<ResourceArc<DeathWatch>> {
        let watch = ResourceArc::new(DeathWatch { target });
        watch.monitor(Some(env), pid).map(|_| watch)
    }
}

/// The processes that a socket monitors: its owner and its subscribers.
pub struct Watched {
    watch: ResourceArc<DeathWatch>,
    owner: Monitor,
    pub subscribers: Vec<Subscriber>,
}

// SAFETY: all parts but the monitors are Send, and ErlNifMonitor is an opaque value without thread affinity.
unsafe impl Send for Watched {}

impl Watched {
    /// Starts to monitor the owner of a socket. `None` if it is dead.
    pub fn begin(env: Env, handle: Handle, owner: &LocalPid) -> Option<Watched> {
        let watch = ResourceArc::new(DeathWatch { target: Target::Socket(handle) });
        let owner = watch.monitor(Some(env), owner)?;
        Some(Watched { watch, owner, subscribers: Vec::new() })
    }

    /// Monitors another owner instead. False if it is dead.
    pub fn set_owner(&mut self, env: Env, owner: &LocalPid) -> bool {
        let Some(monitor) = self.watch.monitor(Some(env), owner) else {
            return false;
        };
        let old = std::mem::replace(&mut self.owner, monitor);
        self.watch.demonitor(Some(env), &old);
        true
    }

    /// Monitors a subscriber, which gets `reference` when the socket closes. False if it is dead.
    pub fn subscribe(&mut self, env: Env, pid: LocalPid, reference: Term) -> bool {
        let Some(monitor) = self.watch.monitor(Some(env), &pid) else {
            return false;
        };
        self.subscribers.push(Subscriber::new(pid, monitor, reference));
        true
    }

    /// Removes a subscription. False if there is none.
    pub fn unsubscribe(&mut self, env: Env, reference: Term) -> bool {
        let Some(at) = self.subscribers.iter().position(|subscriber| subscriber.is(reference)) else {
            return false;
        };
        let subscriber = self.subscribers.swap_remove(at);
        self.watch.demonitor(Some(env), &subscriber.monitor);
        true
    }

    /// Notes that a process has died. Returns whether it was the owner.
    pub fn died(&mut self, monitor: Monitor) -> bool {
        self.subscribers.retain(|subscriber| subscriber.monitor != monitor);
        self.owner == monitor
    }
}

/// A process that called `inet:monitor/1`.
pub struct Subscriber {
    pub pid: LocalPid,
    monitor: Monitor,
    environment: OwnedEnv,
    reference: SavedTerm,
}

impl Subscriber {
    /// `reference` identifies the subscription to the process.
    fn new(pid: LocalPid, monitor: Monitor, reference: Term) -> Subscriber {
        let environment = OwnedEnv::new();
        let reference = environment.save(reference);
        Subscriber { pid, monitor, environment, reference }
    }

    /// Whether this is the subscription of `reference`.
    fn is(&self, reference: Term) -> bool {
        self.environment.run(|env| self.reference.load(env) == reference)
    }

    /// The reference, copied to another environment.
    pub fn reference_in<'a>(&self, env: Env<'a>) -> Term<'a> {
        self.environment.run(|own| self.reference.load(own).in_env(env))
    }
}
