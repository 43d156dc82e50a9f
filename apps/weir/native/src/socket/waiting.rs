//! Who waits for a socket, and the output that waits for the kernel.

use std::sync::Arc;

use rustix::net::Shutdown;
use rustler::{Env, LocalPid};

use crate::kernel::file::File;
use crate::socket::transfer::Transfer;
use crate::term::held::Held;
use crate::value::send_queue::SendQueue;

/// A process that waits for the answer to an operation.
#[derive(Clone, Copy)]
pub struct Waiter {
    pub pid: LocalPid,
    pub operation: u32,
}

/// A process in `recv`, for exactly `length` bytes, or for any if that is zero.
pub struct Receiver {
    pub waiter: Waiter,
    pub length: usize,
}

/// What a process waits for at the send queue.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum SendWait {
    /// Its data went over the high watermark: it goes on below the low one.
    Accepted,
    /// The queue was full and its data was not taken: it sends again below the low watermark.
    Refused,
    /// It closes the socket when the queue is empty.
    Flush,
}

/// Where bytes of a file begin that are queued.
pub struct Queued {
    pub file: Arc<File>,
    pub offset: u64,
}

/// Whether the file in front of the queue is in memory.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Fetched {
    /// To be looked at.
    Unknown,
    /// It is not, and somebody was asked to read it.
    Asked,
    /// It was read up to this offset.
    UpTo(u64),
}

/// What the kernel has not taken yet, and who waits for it. A socket that keeps up has none.
pub struct Output {
    pub queue: SendQueue<Held, Queued>,
    pub fetched: Fetched,
    pub waiting: Vec<(Waiter, SendWait)>,
    /// A sender has gone over the high watermark, and nobody else's data is taken before the queue is down at the low
    /// one: what bounds the memory.
    pub full: bool,
    /// Who closes the socket when the queue is empty: nothing is added to it while that process lives.
    pub closer: Option<LocalPid>,
    /// A shutdown that comes after the last queued byte.
    pub shutdown: Option<Shutdown>,
    /// A file that is being sent: the queue behind it waits.
    pub transfer: Option<Box<Transfer>>,
}

impl Output {
    /// Output with nothing in it.
    pub fn empty() -> Box<Output> {
        Box::new(Output {
            queue: SendQueue::new(),
            fetched: Fetched::Unknown,
            waiting: Vec::new(),
            full: false,
            closer: None,
            shutdown: None,
            transfer: None,
        })
    }

    /// Whether a living process closes the socket when the queue is empty. One that was killed while it waited has changed nothing.
    pub fn is_closing(&self, env: Env) -> bool {
        // Another one may have begun before the last.
        let waiting = self.waiting.iter().filter(|(_, what)| *what == SendWait::Flush).map(|(waiter, _)| waiter.pid);
        self.closer.is_some_and(|closer| {
            env.is_process_alive(closer) || waiting.into_iter().any(|pid| env.is_process_alive(pid))
        })
    }
}
