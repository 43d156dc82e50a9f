//! The state of a listening socket.

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

/// The state that only a listening socket has.
#[derive(Default)]
pub struct Listening {
    /// Processes in `accept`, first come, first served.
    pub acceptors: VecDeque<Acceptor>,
    /// Kernel options that were set while listening. Connections that were already in the backlog
    /// do not inherit them.
    pub late_options: Vec<LateOption>,
    /// A connection that was accepted for a process that then died; the next accept gets it.
    pub orphan: Option<OwnedFd>,
    /// The listener that connections go through, and the index of its queue; `None` for a reactor.
    pub listener: Option<(Arc<Listener>, Option<usize>)>,
    /// The reactor that accepts its connections, on the reactor's pollset.
    pub reactor: Option<LocalPid>,
}

impl Listening {
    /// Sets a kernel option on each connection when it is accepted.
    pub fn set_late(&mut self, level: libc::c_int, name: libc::c_int, value: libc::c_int) {
        self.late_options.retain(|&(l, n, _)| (l, n) != (level, name));
        self.late_options.push((level, name, value));
    }
}
