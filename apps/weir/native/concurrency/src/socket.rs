//! A model of a socket, reduced to its life in the table and on the ready list. The methods
//! correspond to those of `../src/socket/`, the polls to those of `../src/poll/`.

use std::cell::Cell;
use std::collections::VecDeque;
use std::time::Instant;

use crate::handle::{Handle, Target};
use crate::ready::{Ready, Wake};
use crate::slots::{Locked, Lookup, Occupant, Slots};
use crate::sync;

sync::thread_local! {
    static HERE: Cell<usize> = Cell::new(0);
}

/// Makes the calling thread the scheduler with this number.
pub fn run_on(scheduler: usize) {
    HERE.with(|here| here.set(scheduler));
}

/// A socket.
pub struct Socket {
    slot: u32,
    generation: u32,
    open: bool,
    pollset: usize,
    queued: bool,
    /// Number of visits by polls.
    pub visits: usize,
}

impl Occupant for Socket {
    fn vacant(slot: u32, generation: u32) -> Socket {
        Socket { slot, generation, open: false, pollset: 0, queued: false, visits: 0 }
    }

    fn handle(&self) -> Handle {
        Handle::new(self.slot, self.generation)
    }

    fn is_open(&self) -> bool {
        self.open
    }

    fn here() -> usize {
        HERE.with(Cell::get)
    }
}

impl Socket {
    /// Makes the vacant slot a socket; nothing of an earlier socket may be left in it.
    pub fn open(&mut self) -> Handle {
        assert!(!self.open && !self.queued && self.visits == 0, "a slot with something left of its last socket");
        self.open = true;
        self.handle()
    }

    /// Ends the socket. A caller that holds the lock may continue to use it.
    pub fn close(&mut self) {
        self.open = false;
    }

    /// Whether a visit by a poll is pending.
    pub fn is_queued(&self) -> bool {
        self.queued
    }

    /// Puts it on the ready list of its pollset, unless it is there.
    pub fn enqueue<P: Copy>(&mut self, pollsets: &[Ready<P>], wake: impl FnOnce(Wake<P>)) {
        if !self.queued {
            self.queued = true;
            wake(pollsets[self.pollset].push(Target::Socket(self.handle())));
        }
    }

    /// Moves it to another pollset, where it will be visited.
    pub fn move_to<P: Copy>(&mut self, pollsets: &[Ready<P>], target: usize, wake: impl FnOnce(Wake<P>)) {
        self.pollset = target;
        self.queued = false;
        self.enqueue(pollsets, wake);
    }
}

/// Finds the open socket of a handle.
pub fn find<const CHUNKS: usize, const CHUNK: usize>(
    table: &Slots<Socket, CHUNKS, CHUNK>,
    handle: Handle,
) -> Option<Locked<'_, Socket>> {
    match table.lookup(handle) {
        Lookup::Open(socket) => {
            assert_eq!(socket.handle(), handle, "another socket than the handle's");
            Some(socket)
        }
        Lookup::Gone => None,
        Lookup::Never => panic!("{handle:?} was given and is not known"),
    }
}

/// Closes the socket of a handle, unless it is closed already.
pub fn close<const CHUNKS: usize, const CHUNK: usize>(table: &Slots<Socket, CHUNKS, CHUNK>, handle: Handle) {
    if let Some(mut socket) = find(table, handle) {
        socket.close();
    }
}

/// Visits the ready list of a pollset. Returns the number of entries; `None` if the token is
/// stale.
pub fn poll<P: Copy, const CHUNKS: usize, const CHUNK: usize>(
    table: &Slots<Socket, CHUNKS, CHUNK>,
    pollsets: &[Ready<P>],
    index: usize,
    token: u32,
) -> Option<usize> {
    let ready = &pollsets[index];
    let list = ready.take(token, Instant::now())?.list;
    let count = serve(table, index, list);
    ready.polled(Instant::now(), false);
    Some(count)
}

/// Visits the entries of a list. Returns their number.
pub fn serve<const CHUNKS: usize, const CHUNK: usize>(
    table: &Slots<Socket, CHUNKS, CHUNK>,
    index: usize,
    list: VecDeque<Target>,
) -> usize {
    let count = list.len();
    for target in list {
        if let Target::Socket(handle) = target
            && let Some(mut socket) = find(table, handle)
            && socket.queued
            && socket.pollset == index
        {
            socket.queued = false;
            socket.visits += 1;
        }
    }
    count
}
