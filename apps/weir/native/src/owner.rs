//! Who hears when a process dies, and who is told when a socket closes.

use rustler::{Env, LocalPid, Monitor, OwnedEnv, Resource, Term, env::SavedTerm};

use crate::handle::Handle;
use crate::table;

/// The object that the VM's monitors hang on: one for each socket, gone with it.
pub struct Watch {
    pub handle: Handle,
}

#[cfg_attr(not(test), rustler::resource_impl)]
impl Resource for Watch {
    const IMPLEMENTS_DOWN: bool = true;

    fn down<'a>(&'a self, env: Env<'a>, pid: LocalPid, monitor: Monitor) {
        if let Some(mut socket) = table::find(self.handle) {
            socket.process_died(env, pid, monitor);
        }
    }
}

/// A process that called `inet:monitor/1`.
pub struct Subscriber {
    pub pid: LocalPid,
    pub monitor: Monitor,
    environment: OwnedEnv,
    reference: SavedTerm,
}

impl Subscriber {
    /// `reference` is what the process knows its subscription by.
    pub fn new(pid: LocalPid, monitor: Monitor, reference: Term) -> Subscriber {
        let environment = OwnedEnv::new();
        let reference = environment.save(reference);
        Subscriber { pid, monitor, environment, reference }
    }

    /// Whether this is the subscription of `reference`.
    pub fn is(&self, reference: Term) -> bool {
        self.environment.run(|env| self.reference.load(env) == reference)
    }

    /// The reference, copied to another environment.
    pub fn reference_in<'a>(&self, env: Env<'a>) -> Term<'a> {
        self.environment.run(|own| self.reference.load(own).in_env(env))
    }
}
