//! A listener reduced to how a connection goes from its accept queue to the process that serves it, and to how the listener ends.
//! The functions do what those of `../src/listener`, of `../src/verb/accept.rs` and of `weir_listener_process` do.

use crate::arrivals::Arrivals;
use crate::handle::Handle;
use crate::slots::Slots;
use crate::socket::{Socket, find};
use crate::sync::{Mutex, MutexGuard};

/// What somebody finds who comes for a connection.
#[derive(Debug, PartialEq, Eq)]
pub enum Taken {
    Connection(Handle),
    Nothing,
    Outdated,
    /// The process was dead: the connection waits on.
    Dead,
}

/// A listener. Its connections are numbers; so is the version of its options.
pub struct Listener {
    queue: Mutex<Queue>,
}

#[derive(Default)]
struct Queue {
    arrivals: Arrivals<usize>,
    version: usize,
    /// Connections that were closed without a process.
    discarded: usize,
}

impl Default for Listener {
    fn default() -> Listener {
        Listener { queue: Mutex::new(Queue::default()) }
    }
}

impl Listener {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().expect("no panic")
    }

    /// A connection has come.
    pub fn push(&self, connection: usize) {
        let mut queue = self.queue();
        if queue.arrivals.push(connection).is_some() {
            queue.discarded += 1;
        }
    }

    /// Options are changed: connections that come from now on begin with those.
    pub fn set_version(&self, version: usize) {
        self.queue().version = version;
    }

    /// Of how many connections the acceptor is told.
    pub fn tell(&self) -> usize {
        self.queue().arrivals.tell()
    }

    /// A process comes for a connection, with the options of a version; `alive` says whether it still is when it has taken it. The
    /// socket is one of pollset `version`, so that a test sees with what it began.
    pub fn take<const CHUNKS: usize, const CHUNK: usize>(
        &self,
        table: &Slots<Socket, CHUNKS, CHUNK>,
        version: usize,
        alive: bool,
    ) -> Taken {
        let mut slot = table.allocate().expect("room");
        let popped = {
            let mut queue = self.queue();
            if queue.arrivals.len() > 0 && queue.version != version {
                queue.arrivals.tell_again();
                Err(Taken::Outdated)
            } else {
                queue.arrivals.pop().ok_or(Taken::Nothing)
            }
        };
        match popped {
            Err(none) => none,
            Ok(_) if alive => Taken::Connection(slot.open()),
            Ok(connection) => {
                let mut queue = self.queue();
                if queue.arrivals.put_back(connection).is_some() {
                    queue.discarded += 1;
                }
                Taken::Dead
            }
        }
    }

    /// The listener ends: who waits is closed, and who is served is found in the table and closed. Returns how many that were.
    pub fn end<const CHUNKS: usize, const CHUNK: usize>(&self, table: &Slots<Socket, CHUNKS, CHUNK>) -> (usize, usize) {
        let discarded = {
            let mut queue = self.queue();
            queue.discarded += queue.arrivals.close().len();
            queue.discarded
        };
        let mut ended = 0;
        for chunk in 0..CHUNKS {
            for handle in table.handles(chunk).unwrap_or_default() {
                let mut socket = find(table, handle).expect("nobody else closes");
                socket.close();
                ended += 1;
            }
        }
        (discarded, ended)
    }

    /// How many were closed without a process.
    pub fn discarded(&self) -> usize {
        self.queue().discarded
    }
}
