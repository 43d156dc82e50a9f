//! The table of all sockets of the VM, by slot.

use rustler::{Decoder, Error, NifResult, Term};

use crate::kernel::scheduler;
use crate::socket::{Socket, State};
use crate::value::handle::{Handle, SLOTS};
use crate::value::shared::Shared;
use crate::value::slots::{Locked, Lookup, Occupant, Slots};
use crate::value::sync::Mutex;
use crate::value::vacancies::Common;

const CHUNK: usize = 1024;

pub static SOCKETS: Shared<Slots<Socket, { SLOTS as usize / CHUNK }, CHUNK>> =
    Shared::new(Slots::new(Mutex::new(Common::new())));

impl Occupant for Socket {
    fn vacant(slot: u32, generation: u32) -> Socket {
        Socket::vacant(slot, generation)
    }

    fn handle(&self) -> Handle {
        Socket::handle(self)
    }

    fn is_open(&self) -> bool {
        self.state != State::Free
    }

    fn abandoned(&mut self) {
        self.break_off();
    }

    fn here() -> usize {
        scheduler::number().into()
    }
}

/// Finds the socket of a handle.
pub fn lookup(handle: Handle) -> Lookup<'static, Socket> {
    SOCKETS.lookup(handle)
}

/// Finds the sockets of two different handles.
pub fn lookup_both(one: Handle, other: Handle) -> (Lookup<'static, Socket>, Lookup<'static, Socket>) {
    SOCKETS.lookup_both(one, other)
}

/// Finds an open socket, without the reason if there is none.
pub fn find(handle: Handle) -> Option<Locked<'static, Socket>> {
    SOCKETS.find(handle)
}

/// How many sockets ahead of the current one are prefetched.
pub const AHEAD: usize = 3;

/// Prefetches a socket into the processor's cache.
pub fn prefetch(handle: Handle) {
    SOCKETS.prefetch(handle);
}

/// Returns a vacant slot, locked; `None` if all 16 million are taken. [`lookup`] treats it as
/// vacant until its state is set. If that does not happen, it becomes vacant again.
pub fn allocate() -> Option<Locked<'static, Socket>> {
    SOCKETS.allocate()
}

/// The handles of the open sockets in a chunk; `None` past the last chunk. Chunks bound the time
/// of a walk.
pub fn handles(chunk: usize) -> Option<Vec<Handle>> {
    SOCKETS.handles(chunk)
}

/// Results of `choose` for the open sockets of a chunk, each under its lock; see [`handles`].
pub fn select<R>(chunk: usize, choose: impl Fn(&Socket) -> Option<R>) -> Option<Vec<R>> {
    SOCKETS.select(chunk, |socket| choose(socket))
}

/// Visits the open sockets of a chunk that are not locked elsewhere. Returns the number of locked
/// ones; `None` past the last chunk.
pub fn visit_unlocked(chunk: usize, visit: impl FnMut(&mut Socket)) -> Option<usize> {
    SOCKETS.visit_unlocked(chunk, visit)
}

impl<'a> Decoder<'a> for Handle {
    fn decode(term: Term<'a>) -> NifResult<Handle> {
        Handle::from_raw(term.decode()?).ok_or(Error::BadArg)
    }
}
