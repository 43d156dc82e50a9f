//! A model of a listener, reduced to how a connection gets from its accept queue to its process,
//! and how the listener ends. The functions correspond to those of `../src/listener`,
//! `../src/verb/accept.rs` and `weir_listener_process`.

use crate::arrivals::Arrivals;
use crate::handle::Handle;
use crate::slots::Slots;
use crate::socket::{Socket, find};
use crate::sync::{Mutex, MutexGuard};

/// Result of taking a connection.
#[derive(Debug, PartialEq, Eq)]
pub enum Taken {
    Connection(Handle),
    Nothing,
    Outdated,
    /// The process was dead; the connection stays in the queue.
    Dead,
}

/// A listener. Its connections and the version of its options are numbers.
pub struct Listener {
    queue: Mutex<Queue>,
}

#[derive(Default)]
struct Queue {
    arrivals: Arrivals<usize>,
    version: usize,
    /// Number of connections closed without a process.
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

    /// Adds a connection.
    pub fn push(&self, connection: usize) {
        let mut queue = self.queue();
        if queue.arrivals.push(connection).is_some() {
            queue.discarded += 1;
        }
    }

    /// Changes the options for connections that come from now on.
    pub fn set_version(&self, version: usize) {
        self.queue().version = version;
    }

    /// The number of connections to announce to the acceptor.
    pub fn tell(&self) -> usize {
        self.queue().arrivals.tell()
    }

    /// A process with the options of `version` takes a connection; `alive` says whether it is
    /// still alive afterwards. The new socket is on pollset `version`, so that a test can see its
    /// options.
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

    /// Ends the listener: closes the queued connections, and those with a process, which it finds
    /// in the table. Returns the number of each.
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

    /// Number of connections closed without a process.
    pub fn discarded(&self) -> usize {
        self.queue().discarded
    }
}
