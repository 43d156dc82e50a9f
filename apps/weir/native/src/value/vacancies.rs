//! The vacant slots of a table. Each scheduler has a list of its own, so that schedulers do not
//! wait for each other, and neighbouring slots, which share cache lines, are used by the same
//! scheduler. Lists are filled from and emptied into a common list, in batches.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::sync::{self, Mutex, MutexGuard};

/// Number of lists. More schedulers share them.
const LISTS: usize = 64;

/// Slots moved at once from or to the common list. A list holds at most twice as many.
const BATCH: usize = 32;

/// The slots of one table that have no occupant.
pub struct Vacancies {
    common: Mutex<Common>,
    lists: OnceLock<Box<[List]>>,
    /// Number of lock waits.
    contended: AtomicU64,
}

/// Vacant slots for all lists, and the first slot that was never used.
pub struct Common {
    slots: Vec<u32>,
    fresh: u32,
}

impl Common {
    /// No slot has been used.
    pub const fn new() -> Common {
        Common { slots: Vec::new(), fresh: 0 }
    }

    /// Takes a batch of slots below `end`; the first to use is last.
    fn take(&mut self, end: u32) -> Vec<u32> {
        if self.slots.is_empty() {
            let first = self.fresh;
            self.fresh = end.min(first.saturating_add(BATCH as u32));
            (first..self.fresh).rev().collect()
        } else {
            let kept = self.slots.len().saturating_sub(BATCH);
            self.slots.split_off(kept)
        }
    }
}

/// Two cache lines of its own, since processors fetch them in pairs.
#[repr(align(128))]
struct List(Mutex<Vec<u32>>);

impl Vacancies {
    /// All slots are vacant. The caller passes the lock, because not every lock can be created in
    /// a constant.
    pub const fn new(common: Mutex<Common>) -> Vacancies {
        Vacancies { common, lists: OnceLock::new(), contended: AtomicU64::new(0) }
    }

    /// Takes a lock, and counts if it has to wait.
    pub fn lock<'a, L>(&self, mutex: &'a Mutex<L>) -> MutexGuard<'a, L> {
        sync::lock(mutex, || {
            self.contended.fetch_add(1, Relaxed);
        })
    }

    /// Number of lock waits.
    pub fn contended(&self) -> u64 {
        self.contended.load(Relaxed)
    }

    fn lists(&self) -> &[List] {
        self.lists.get_or_init(|| (0..LISTS).map(|_| List(Mutex::new(Vec::new()))).collect())
    }

    /// Takes a vacant slot below `end` for a caller on scheduler `here`; `None` when all are
    /// taken.
    pub fn take(&self, here: usize, end: u32) -> Option<u32> {
        let lists = self.lists();
        {
            let mut list = self.lock(&lists[here % LISTS].0);
            if list.is_empty() {
                list.append(&mut self.lock(&self.common).take(end));
            }
            if let Some(slot) = list.pop() {
                return Some(slot);
            }
        }
        // The last vacant slots may be in other lists.
        lists.iter().find_map(|list| self.lock(&list.0).pop())
    }

    /// Returns a slot that has become vacant.
    pub fn give(&self, here: usize, slot: u32) {
        let mut list = self.lock(&self.lists()[here % LISTS].0);
        list.push(slot);
        if list.len() > 2 * BATCH {
            self.lock(&self.common).slots.extend(list.drain(..BATCH));
        }
    }

    /// Number of occupied slots.
    pub fn occupied(&self) -> usize {
        let lists: Vec<_> = self.lists().iter().map(|list| self.lock(&list.0)).collect();
        let common = self.lock(&self.common);
        common.fresh as usize - common.slots.len() - lists.iter().map(|list| list.len()).sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vacancies() -> Vacancies {
        Vacancies::new(Mutex::new(Common::new()))
    }

    #[test]
    fn schedulers_have_slots_that_are_no_neighbours() {
        let vacancies = vacancies();
        let taken: Vec<_> = (0..4).map(|here| [vacancies.take(here, 1000), vacancies.take(here, 1000)]).collect();
        let batch = BATCH as u32;
        assert_eq!(taken, [0, batch, 2 * batch, 3 * batch].map(|first| [Some(first), Some(first + 1)]));
        assert_eq!(vacancies.occupied(), 8);
    }

    #[test]
    fn the_last_ones_are_taken_from_others() {
        let vacancies = vacancies();
        assert_eq!(vacancies.take(0, 3), Some(0));
        let mut rest = [vacancies.take(1, 3), vacancies.take(2, 3)];
        rest.sort();
        assert_eq!((rest, vacancies.take(0, 3)), ([Some(1), Some(2)], None));
        vacancies.give(1, 2);
        assert_eq!((vacancies.take(2, 3), vacancies.occupied()), (Some(2), 3));
    }

    #[test]
    fn what_one_gives_back_others_have_from_it() {
        let vacancies = vacancies();
        let slots: Vec<u32> = (0..5 * BATCH).map_while(|_| vacancies.take(0, u32::MAX)).collect();
        for &slot in &slots {
            vacancies.give(1, slot);
        }
        assert_eq!(vacancies.occupied(), 0);
        let mut again: Vec<u32> = (0..slots.len()).map_while(|at| vacancies.take(at % 3, slots.len() as u32)).collect();
        again.sort_unstable();
        assert_eq!(again, slots);
        assert_eq!((vacancies.take(0, slots.len() as u32), vacancies.occupied()), (None, slots.len()));
    }
}
