//! The locks of what several schedulers share: [`ready`](super::ready) and [`slots`](crate::value::slots) take them from here, so
//! that `concurrency/` can give them loom's instead and try every interleaving of the same code.

pub use std::sync::{Mutex, MutexGuard};
use std::sync::{PoisonError, TryLockError};

/// Takes a lock; `waits` is called before if somebody else has it. A panic while it was held has been reported to its caller as
/// an exception; what it guards is whole enough to go on with, or to be closed.
pub fn lock<T>(mutex: &Mutex<T>, waits: impl FnOnce()) -> MutexGuard<'_, T> {
    match mutex.try_lock() {
        Ok(guard) => guard,
        Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
        Err(TryLockError::WouldBlock) => {
            waits();
            mutex.lock().unwrap_or_else(PoisonError::into_inner)
        }
    }
}

/// Takes a lock unless somebody has it. After a panic it is taken as by [`lock`].
pub fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    #[test]
    fn only_those_who_wait_are_told_of() {
        let (mutex, waits) = (Mutex::new(0), AtomicU64::new(0));
        let count = || {
            waits.fetch_add(1, Relaxed);
        };
        *lock(&mutex, count) += 1;
        assert_eq!(waits.load(Relaxed), 0);
        let guard = lock(&mutex, count);
        std::thread::scope(|scope| {
            scope.spawn(|| *lock(&mutex, count) += 1);
            while waits.load(Relaxed) == 0 {
                std::thread::yield_now();
            }
            drop(guard);
        });
        assert_eq!((*lock(&mutex, count), waits.load(Relaxed)), (2, 1));
    }

    #[test]
    fn a_panic_leaves_it_to_the_next() {
        let mutex = Mutex::new(1);
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _guard = lock(&mutex, || {});
            std::panic::resume_unwind(Box::new(()));
        }));
        assert!(panicked.is_err());
        assert_eq!(try_lock(&mutex).map(|guard| *guard), Some(1));
        let guard = lock(&mutex, || {});
        assert_eq!(*guard, 1);
        assert!(try_lock(&mutex).is_none());
    }
}
