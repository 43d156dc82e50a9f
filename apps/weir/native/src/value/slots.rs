//! A table whose handles are never reused: a handle is a slot and the generation of its occupant.

use std::hash::{BuildHasher, RandomState};
use std::ops::{Deref, DerefMut};
use std::sync::OnceLock;

use super::handle::Handle;
use super::sync::{self, Mutex, MutexGuard};
use super::vacancies::{Common, Vacancies};

/// A type that can live in a slot.
pub trait Occupant {
    /// A vacant `slot` whose next occupant gets this `generation`.
    fn vacant(slot: u32, generation: u32) -> Self;
    /// The handle of the occupant.
    fn handle(&self) -> Handle;
    /// Whether lookups find it. A slot is vacant until this is true, and again when it becomes
    /// false.
    fn is_open(&self) -> bool;
    /// Called after a panic that may have left it in an inconsistent state.
    fn abandoned(&mut self) {}
    /// The number of the calling scheduler; any number on other threads.
    fn here() -> usize;
}

/// `CHUNKS` times `CHUNK` slots, each with its own lock.
///
/// Slots are made in chunks when needed, and never freed. So a slot is found without a lock, and a
/// handle of any age can be looked up.
pub struct Slots<T, const CHUNKS: usize, const CHUNK: usize> {
    chunks: [OnceLock<Box<[Mutex<T>]>>; CHUNKS],
    vacancies: Vacancies,
    /// The generation of the first occupant of each slot. It is random, so that handles of another
    /// or an earlier VM are invalid here.
    origin: OnceLock<u32>,
}

/// Result of a lookup.
pub enum Lookup<'a, T: Occupant> {
    /// The occupant, locked.
    Open(Locked<'a, T>),
    /// The occupant is gone.
    Gone,
    /// No occupant ever had this handle.
    Never,
}

/// A locked slot. Unlocking a slot whose occupant is not open makes it vacant.
///
/// So a function ends an occupant by making it not open. Its callers still hold the ended
/// occupant, not another one; what they do to it has no effect, and is discarded.
pub struct Locked<'a, T: Occupant> {
    occupant: MutexGuard<'a, T>,
    vacancies: &'a Vacancies,
}

impl<T: Occupant> Deref for Locked<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.occupant
    }
}

impl<T: Occupant> DerefMut for Locked<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.occupant
    }
}

impl<T: Occupant> Drop for Locked<'_, T> {
    #[inline]
    fn drop(&mut self) {
        if std::thread::panicking() && self.occupant.is_open() {
            self.occupant.abandoned();
        }
        if !self.occupant.is_open() {
            self.vacate();
        }
    }
}

impl<T: Occupant> Locked<'_, T> {
    /// Makes the slot vacant; its handle becomes invalid.
    #[cold]
    fn vacate(&mut self) {
        let handle = self.occupant.handle();
        *self.occupant = T::vacant(handle.slot(), handle.generation().wrapping_add(1));
        self.vacancies.give(T::here(), handle.slot());
    }
}

impl<T: Occupant, const CHUNKS: usize, const CHUNK: usize> Slots<T, CHUNKS, CHUNK> {
    const SLOTS: u32 = (CHUNKS * CHUNK) as u32;

    /// Creates an empty table. The caller passes the lock, because not every lock can be created
    /// in a constant.
    pub const fn new(vacant: Mutex<Common>) -> Self {
        Slots {
            chunks: [const { OnceLock::new() }; CHUNKS],
            vacancies: Vacancies::new(vacant),
            origin: OnceLock::new(),
        }
    }

    fn lock<'a, L>(&self, mutex: &'a Mutex<L>) -> MutexGuard<'a, L> {
        self.vacancies.lock(mutex)
    }

    /// Wraps a locked slot.
    fn locked<'a>(&'a self, occupant: MutexGuard<'a, T>) -> Locked<'a, T> {
        Locked { occupant, vacancies: &self.vacancies }
    }

    /// Number of waits for locks of this table.
    pub fn contended(&self) -> u64 {
        self.vacancies.contended()
    }

    fn origin(&self) -> u32 {
        *self.origin.get_or_init(|| RandomState::new().hash_one(0) as u32)
    }

    /// Whether `handle` is older than `current`, the present or next handle of the slot.
    /// Generations wrap around, so they are counted from the first.
    fn is_gone(&self, handle: Handle, current: Handle) -> bool {
        let age = |handle: Handle| handle.generation().wrapping_sub(self.origin());
        age(handle) < age(current)
    }

    /// Looks up a handle.
    pub fn lookup(&self, handle: Handle) -> Lookup<'_, T> {
        let slot = handle.slot() as usize;
        let Some(chunk) = self.chunks.get(slot / CHUNK).and_then(|chunk| chunk.get()) else {
            return Lookup::Never;
        };
        let occupant = self.lock(&chunk[slot % CHUNK]);
        let current = occupant.handle();
        if current == handle && occupant.is_open() {
            Lookup::Open(self.locked(occupant))
        } else if self.is_gone(handle, current) {
            Lookup::Gone
        } else {
            Lookup::Never
        }
    }

    /// Finds an open occupant, without the reason if there is none.
    pub fn find(&self, handle: Handle) -> Option<Locked<'_, T>> {
        match self.lookup(handle) {
            Lookup::Open(occupant) => Some(occupant),
            Lookup::Gone | Lookup::Never => None,
        }
    }

    /// Looks up two different handles. The lower slot is locked first, so that two callers with
    /// the same pair do not deadlock.
    pub fn lookup_both(&self, one: Handle, other: Handle) -> (Lookup<'_, T>, Lookup<'_, T>) {
        debug_assert!(one != other);
        if one.slot() > other.slot() {
            let (other, one) = self.lookup_both(other, one);
            return (one, other);
        }
        let first = self.lookup(one);
        // Only one generation can be in the slot, and it is locked already.
        let second = match &first {
            Lookup::Open(_) if one.slot() == other.slot() => match self.is_gone(other, one) {
                true => Lookup::Gone,
                false => Lookup::Never,
            },
            _ => self.lookup(other),
        };
        (first, second)
    }

    /// Prefetches an occupant for a lookup that follows soon. With thousands of occupants each
    /// lookup is a cache miss otherwise.
    pub fn prefetch(&self, handle: Handle) {
        let slot = handle.slot() as usize;
        if let Some(chunk) = self.chunks.get(slot / CHUNK).and_then(|chunk| chunk.get()) {
            fetch(&chunk[slot % CHUNK]);
        }
    }

    /// Returns a vacant slot, locked; `None` when all are taken. [`lookup`](Self::lookup) treats
    /// it as vacant until its occupant is open. If it is not open when unlocked, it becomes vacant
    /// again.
    pub fn allocate(&self) -> Option<Locked<'_, T>> {
        let slot = self.vacancies.take(T::here(), Self::SLOTS)?;
        let (number, within) = (slot as usize / CHUNK, slot as usize % CHUNK);
        let first = (number * CHUNK) as u32;
        let chunk = self.chunks[number].get_or_init(|| {
            (first..first + CHUNK as u32).map(|slot| Mutex::new(T::vacant(slot, self.origin()))).collect()
        });
        Some(self.locked(self.lock(&chunk[within])))
    }

    /// Number of occupied slots.
    pub fn occupied(&self) -> usize {
        self.vacancies.occupied()
    }

    /// The handles of the open occupants in a chunk; `None` past the last chunk. Chunks bound the
    /// time of a walk.
    pub fn handles(&self, chunk: usize) -> Option<Vec<Handle>> {
        self.select(chunk, |occupant| Some(occupant.handle()))
    }

    /// Results of `choose` for the open occupants of a chunk, each under its lock.
    pub fn select<R>(&self, chunk: usize, mut choose: impl FnMut(&mut T) -> Option<R>) -> Option<Vec<R>> {
        let chunk = self.chunks.get(chunk)?.get()?;
        let chosen = chunk.iter().filter_map(|occupant| {
            let occupant = self.lock(occupant);
            if occupant.is_open() { choose(&mut self.locked(occupant)) } else { None }
        });
        Some(chosen.collect())
    }

    /// Visits the open occupants of a chunk that are not locked elsewhere. Returns the number of
    /// locked ones; `None` past the last chunk.
    pub fn visit_unlocked(&self, chunk: usize, mut visit: impl FnMut(&mut T)) -> Option<usize> {
        let mut locked = 0;
        for occupant in self.chunks.get(chunk)?.get()? {
            match sync::try_lock(occupant) {
                Some(occupant) if occupant.is_open() => visit(&mut self.locked(occupant)),
                Some(_) => {}
                None => locked += 1,
            }
        }
        Some(locked)
    }
}

/// Prefetches the cache lines of a value, on x86-64 only.
fn fetch<T>(value: &T) {
    #[cfg(target_arch = "x86_64")]
    for line in (0..size_of::<T>()).step_by(64) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let address = std::ptr::from_ref(value).cast::<i8>().wrapping_add(line);
        // SAFETY: a hint, which reads nothing and cannot fault.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = value;
}

#[cfg(test)]
// The models in `concurrency/` include this file by its path, so `tests` needs one, too.
#[path = "slots/tests.rs"]
mod tests;
