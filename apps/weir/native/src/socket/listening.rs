//! What only a listening socket has.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustler::LocalPid;

use crate::listener::{LateOption, Listener};
use crate::socket::Waiter;

/// A process in `accept`, and the pollset of the scheduler that it called from.
pub struct Acceptor {
    pub waiter: Waiter,
    pub pollset: u16,
}

/// What only a listening socket has.
#[derive(Default)]
pub struct Listening {
    /// Processes in `accept`, in the order in which they came.
    pub acceptors: VecDeque<Acceptor>,
    /// Kernel options that were set while listening: connections that were in the backlog already do not have them.
    pub late_options: Vec<LateOption>,
    /// A connection that was accepted for a process that died at that moment: the next accept gets it.
    pub orphan: Option<OwnedFd>,
    /// Connections go through this listener, to one of its queues; or else to the reactor.
    pub listener: Option<(Arc<Listener>, Option<usize>)>,
    /// The reactor that takes the connections on its own pollset.
    pub reactor: Option<LocalPid>,
}

impl Listening {
    /// Has connections take a kernel option when they are accepted.
    pub fn set_late(&mut self, level: libc::c_int, name: libc::c_int, value: libc::c_int) {
        self.late_options.retain(|&(l, n, _)| (l, n) != (level, name));
        self.late_options.push((level, name, value));
    }
}
