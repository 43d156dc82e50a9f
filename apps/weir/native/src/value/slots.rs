//! A table whose entries have names that are never given twice: a slot, and the generation of what lives in it.

use std::hash::{BuildHasher, RandomState};
use std::ops::{Deref, DerefMut};
use std::sync::OnceLock;

use super::handle::Handle;
use super::sync::{self, Mutex, MutexGuard};
use super::vacancies::{Common, Vacancies};

/// What can live in a slot.
pub trait Occupant {
    /// An empty `slot` whose next occupant will have this `generation`.
    fn vacant(slot: u32, generation: u32) -> Self;
    /// Slot and generation.
    fn handle(&self) -> Handle;
    /// Whether it is to be found: a slot is empty until its occupant says so, and again when it does not say so any more.
    fn is_open(&self) -> bool;
    /// A panic has left it half done, and nobody may go on with it as if nothing had happened.
    fn abandoned(&mut self) {}
    /// The number of the scheduler on which one comes or goes now, and any number elsewhere.
    fn here() -> usize;
}

/// `CHUNKS` times `CHUNK` slots, each with a lock of its own.
///
/// Slots come in chunks, made when first needed and never freed: a slot can be looked up without a lock, and a handle of
/// any age may be looked up at any time.
pub struct Slots<T, const CHUNKS: usize, const CHUNK: usize> {
    chunks: [OnceLock<Box<[Mutex<T>]>>; CHUNKS],
    vacancies: Vacancies,
    /// The generation of the first occupant of a slot. It is a random number, so that the handle of another VM, or of an
    /// earlier one, does not name what is here.
    origin: OnceLock<u32>,
}

/// What a handle names.
pub enum Lookup<'a, T: Occupant> {
    /// The occupant, locked.
    Open(Locked<'a, T>),
    /// It is gone.
    Gone,
    /// Nothing ever had this handle.
    Never,
}

/// A slot, locked. Where the lock is let go of, a slot whose occupant is not open is emptied and given back.
///
/// So a function that ends an occupant only has it say that it is not open any more. Its callers still have the
/// occupant, with its handle, and not the slot of another: what they do to it has no effect, and goes with it.
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
    /// From now on the handle names nothing.
    #[cold]
    fn vacate(&mut self) {
        let handle = self.occupant.handle();
        *self.occupant = T::vacant(handle.slot(), handle.generation().wrapping_add(1));
        self.vacancies.give(T::here(), handle.slot());
    }
}

impl<T: Occupant, const CHUNKS: usize, const CHUNK: usize> Slots<T, CHUNKS, CHUNK> {
    const SLOTS: u32 = (CHUNKS * CHUNK) as u32;

    /// An empty table. It is given its lock, because not every lock can be made in a constant.
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

    /// What is handed out of a slot.
    fn locked<'a>(&'a self, occupant: MutexGuard<'a, T>) -> Locked<'a, T> {
        Locked { occupant, vacancies: &self.vacancies }
    }

    /// How often somebody has waited for a lock of this table.
    pub fn contended(&self) -> u64 {
        self.vacancies.contended()
    }

    fn origin(&self) -> u32 {
        *self.origin.get_or_init(|| RandomState::new().hash_one(0) as u32)
    }

    /// Whether a handle has named something in a slot in which `current` is the next to name something. Generations wrap
    /// around: they are counted from the first.
    fn is_gone(&self, handle: Handle, current: Handle) -> bool {
        let age = |handle: Handle| handle.generation().wrapping_sub(self.origin());
        age(handle) < age(current)
    }

    /// Finds what a handle names.
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

    /// Finds what is open; for those who do not care why there is nothing.
    pub fn find(&self, handle: Handle) -> Option<Locked<'_, T>> {
        match self.lookup(handle) {
            Lookup::Open(occupant) => Some(occupant),
            Lookup::Gone | Lookup::Never => None,
        }
    }

    /// Finds what two handles name that differ. The lower slot is locked first, so that two who ask for the same pair, in
    /// any order, do not wait for each other.
    pub fn lookup_both(&self, one: Handle, other: Handle) -> (Lookup<'_, T>, Lookup<'_, T>) {
        debug_assert!(one != other);
        if one.slot() > other.slot() {
            let (other, one) = self.lookup_both(other, one);
            return (one, other);
        }
        let first = self.lookup(one);
        // At most one of two generations lives in a slot, and its lock is taken.
        let second = match &first {
            Lookup::Open(_) if one.slot() == other.slot() => match self.is_gone(other, one) {
                true => Lookup::Gone,
                false => Lookup::Never,
            },
            _ => self.lookup(other),
        };
        (first, second)
    }

    /// Has the processor fetch what a handle names, for a lookup that comes soon: with thousands of occupants each is a
    /// miss of the cache, which is over by then.
    pub fn prefetch(&self, handle: Handle) {
        let slot = handle.slot() as usize;
        if let Some(chunk) = self.chunks.get(slot / CHUNK).and_then(|chunk| chunk.get()) {
            fetch(&chunk[slot % CHUNK]);
        }
    }

    /// A vacant slot, locked; none when all are taken. It counts as vacant for [`lookup`](Self::lookup) until what is put
    /// there is open, and is vacant again if that is not so when the lock is let go of.
    pub fn allocate(&self) -> Option<Locked<'_, T>> {
        let slot = self.vacancies.take(T::here(), Self::SLOTS)?;
        let (number, within) = (slot as usize / CHUNK, slot as usize % CHUNK);
        let first = (number * CHUNK) as u32;
        let chunk = self.chunks[number].get_or_init(|| {
            (first..first + CHUNK as u32).map(|slot| Mutex::new(T::vacant(slot, self.origin()))).collect()
        });
        Some(self.locked(self.lock(&chunk[within])))
    }

    /// How many slots have an occupant.
    pub fn occupied(&self) -> usize {
        self.vacancies.occupied()
    }

    /// The handles of what is open in the chunk with number `chunk`, or nothing where there is no such chunk: walking the
    /// table is done in bounded pieces.
    pub fn handles(&self, chunk: usize) -> Option<Vec<Handle>> {
        self.select(chunk, |occupant| Some(occupant.handle()))
    }

    /// What `choose` says of those that are open in a chunk, each under its lock.
    pub fn select<R>(&self, chunk: usize, mut choose: impl FnMut(&mut T) -> Option<R>) -> Option<Vec<R>> {
        let chunk = self.chunks.get(chunk)?.get()?;
        let chosen = chunk.iter().filter_map(|occupant| {
            let occupant = self.lock(occupant);
            if occupant.is_open() { choose(&mut self.locked(occupant)) } else { None }
        });
        Some(chosen.collect())
    }

    /// Visits those that are open in a chunk and that nobody else has locked. How many somebody else has locked; nothing where there is
    /// no such chunk.
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

/// Asks for the lines of the cache that a value is in. Other processors than these are not asked.
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
// The models include this file by its path, from where `tests` alone would not be found.
#[path = "slots/tests.rs"]
mod tests;
