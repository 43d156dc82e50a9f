//! A socket reduced to what its life in the table and on the ready list consists of. The methods say and do what those of
//! `../src/socket/` do, the poll what that of `../src/pollset/` does.

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

/// From now on the calling thread is a scheduler with this number; before it is none.
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
    /// How often a poll has visited it.
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
    /// Makes the vacant slot a socket, which must be as if nobody had ever been there.
    pub fn open(&mut self) -> Handle {
        assert!(!self.open && !self.queued && self.visits == 0, "a slot with something left of its last socket");
        self.open = true;
        self.handle()
    }

    /// Ends it. Who has it locked may go on with what is left.
    pub fn close(&mut self) {
        self.open = false;
    }

    /// Whether a poll is to visit it.
    pub fn is_queued(&self) -> bool {
        self.queued
    }

    /// Puts it on the ready list of its pollset, once.
    pub fn enqueue<P: Copy>(&mut self, pollsets: &[Ready<P>], wake: impl FnOnce(Wake<P>)) {
        if !self.queued {
            self.queued = true;
            wake(pollsets[self.pollset].push(Target::Socket(self.handle())));
        }
    }

    /// Takes it to another pollset, to be visited there.
    pub fn move_to<P: Copy>(&mut self, pollsets: &[Ready<P>], target: usize, wake: impl FnOnce(Wake<P>)) {
        self.pollset = target;
        self.queued = false;
        self.enqueue(pollsets, wake);
    }
}

/// The open socket of a handle.
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

/// Closes the socket of a handle, unless somebody was faster.
pub fn close<const CHUNKS: usize, const CHUNK: usize>(table: &Slots<Socket, CHUNKS, CHUNK>, handle: Handle) {
    if let Some(mut socket) = find(table, handle) {
        socket.close();
    }
}

/// Visits what is on the list of a pollset: how many sockets were there, or nothing if the token is stale.
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

/// Visits what was on a list: how many sockets that were.
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
