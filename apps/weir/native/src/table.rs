//! All sockets of the VM, by slot.

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use crate::handle::{Handle, SLOTS};
use crate::socket::{Socket, State};

/// Slots come in chunks, made when first needed and never freed: a slot can be looked up without a lock, and a handle
/// of any age may be looked up at any time.
const CHUNK: u32 = 1024;

static CHUNKS: [OnceLock<Box<[Mutex<Socket>]>>; (SLOTS / CHUNK) as usize] =
    [const { OnceLock::new() }; (SLOTS / CHUNK) as usize];

/// Slots without a socket, and the first that never had one. Touched when a socket opens or closes, not in between.
struct Vacant {
    slots: Vec<u32>,
    fresh: u32,
}

static VACANT: Mutex<Vacant> = Mutex::new(Vacant { slots: Vec::new(), fresh: 0 });

/// Takes the lock. A panic while it was held has been reported to its caller as an exception; the socket is whole enough
/// to be closed, which is all that anybody can do with it.
fn lock(mutex: &Mutex<Socket>) -> MutexGuard<'_, Socket> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a handle names.
pub enum Lookup {
    /// The socket, locked.
    Open(MutexGuard<'static, Socket>),
    /// The handle's socket is closed.
    Gone,
    /// No socket ever had this handle.
    Never,
}

/// Finds the socket of a handle.
pub fn lookup(handle: Handle) -> Lookup {
    let slot = handle.slot();
    let Some(chunk) = CHUNKS[(slot / CHUNK) as usize].get() else {
        return Lookup::Never;
    };
    let socket = lock(&chunk[(slot % CHUNK) as usize]);
    if socket.generation == handle.generation() && socket.state != State::Free {
        Lookup::Open(socket)
    } else if handle.generation() < socket.generation {
        Lookup::Gone
    } else {
        Lookup::Never
    }
}

/// Finds an open socket; for those who do not care why there is none.
pub fn find(handle: Handle) -> Option<MutexGuard<'static, Socket>> {
    match lookup(handle) {
        Lookup::Open(socket) => Some(socket),
        Lookup::Gone | Lookup::Never => None,
    }
}

/// A vacant slot for a new socket, locked; none when all 16 million are taken. The slot counts as vacant for
/// [`lookup`] until its state is set.
pub fn allocate() -> Option<MutexGuard<'static, Socket>> {
    let slot = {
        let mut vacant = VACANT.lock().unwrap_or_else(PoisonError::into_inner);
        match vacant.slots.pop() {
            Some(slot) => slot,
            None if vacant.fresh == SLOTS => return None,
            None => {
                vacant.fresh += 1;
                vacant.fresh - 1
            }
        }
    };
    let first = slot / CHUNK * CHUNK;
    let chunk = CHUNKS[(slot / CHUNK) as usize]
        .get_or_init(|| (first..first + CHUNK).map(|slot| Mutex::new(Socket::vacant(slot))).collect());
    Some(lock(&chunk[(slot % CHUNK) as usize]))
}

/// Gives a slot back. Its socket has been closed and has the next generation already.
pub fn vacate(slot: u32) {
    VACANT.lock().unwrap_or_else(PoisonError::into_inner).slots.push(slot);
}

/// The handles of the open sockets of the chunk with number `chunk`, or nothing where there is no such chunk: walking
/// the table is done in bounded pieces.
pub fn handles(chunk: usize) -> Option<Vec<Handle>> {
    let chunk = CHUNKS.get(chunk)?.get()?;
    let open = chunk.iter().filter_map(|socket| {
        let socket = lock(socket);
        (socket.state != State::Free).then(|| socket.handle())
    });
    Some(open.collect())
}
