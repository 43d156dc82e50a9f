//! Processes that wait for a socket, and output that waits for the kernel.

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

/// A process in `recv`, for exactly `length` bytes, or for any number if `length` is zero.
pub struct Receiver {
    pub waiter: Waiter,
    pub length: usize,
}

/// What a process waits for at the send queue.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum SendWait {
    /// Its data went over the high watermark; it continues below the low watermark.
    Accepted,
    /// The queue was full and its data was refused; it sends again below the low watermark.
    Refused,
    /// It closes the socket when the queue is empty.
    Flush,
}

/// A queued part of a file.
pub struct Queued {
    pub file: Arc<File>,
    pub offset: u64,
}

/// Whether the first queued bytes of a file are in memory.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Fetched {
    /// Not checked yet.
    Unknown,
    /// They are not; a process was asked to read them.
    Asked,
    /// They were read, up to this offset.
    UpTo(u64),
}

/// Output that the kernel has not taken yet, and the processes that wait for it. `None` in the
/// socket if there is none.
pub struct Output {
    pub queue: SendQueue<Held, Queued>,
    pub fetched: Fetched,
    pub waiting: Vec<(Waiter, SendWait)>,
    /// A sender has gone over the high watermark. No other data is taken until the queue is down
    /// to the low watermark, which bounds its memory.
    pub full: bool,
    /// The process that closes the socket when the queue is empty. No data is added while it
    /// lives.
    pub closer: Option<LocalPid>,
    /// A shutdown to perform after the last queued byte.
    pub shutdown: Option<Shutdown>,
    /// A file that is being sent; the queue waits behind it.
    pub transfer: Option<Box<Transfer>>,
}

impl Output {
    /// Empty output.
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

    /// Whether a living process closes the socket when the queue is empty. A closer that was
    /// killed is ignored.
    pub fn is_closing(&self, env: Env) -> bool {
        // Another process may have called close before the current closer.
        let waiting = self.waiting.iter().filter(|(_, what)| *what == SendWait::Flush).map(|(waiter, _)| waiter.pid);
        self.closer.is_some_and(|closer| {
            env.is_process_alive(closer) || waiting.into_iter().any(|pid| env.is_process_alive(pid))
        })
    }
}
