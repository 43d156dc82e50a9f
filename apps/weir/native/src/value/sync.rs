//! Locks and atomics for data that schedulers share. They are those of the standard library;
//! [`chaos`](super::chaos) delays threads at locks, and `concurrency/` replaces them with loom's,
//! to test the modules that it includes in every interleaving.

pub use std::sync::atomic;
use std::sync::{PoisonError, TryLockError};

#[cfg(not(feature = "chaos"))]
pub use std::sync::{Mutex, MutexGuard};

#[cfg(feature = "chaos")]
pub use self::held_up::{Mutex, MutexGuard};

/// Takes a lock, and calls `waits` first if it is taken. Ignores poisoning: the panic was reported
/// to its caller as an exception, and the guarded data is consistent enough to use or to close.
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

/// Takes a lock unless it is taken. Ignores poisoning like [`lock`].
pub fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// The standard library's lock, with delays.
#[cfg(feature = "chaos")]
mod held_up {
    use std::mem::ManuallyDrop;
    use std::ops::{Deref, DerefMut};
    use std::sync::{LockResult, PoisonError, TryLockError, TryLockResult};

    use super::super::chaos;

    #[derive(Default)]
    pub struct Mutex<T>(std::sync::Mutex<T>);

    pub struct MutexGuard<'a, T>(ManuallyDrop<std::sync::MutexGuard<'a, T>>);

    impl<T> Mutex<T> {
        pub const fn new(value: T) -> Mutex<T> {
            Mutex(std::sync::Mutex::new(value))
        }

        pub fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
            chaos::at_lock();
            match self.0.lock() {
                Ok(guard) => Ok(MutexGuard::new(guard)),
                Err(poisoned) => Err(PoisonError::new(MutexGuard::new(poisoned.into_inner()))),
            }
        }

        pub fn try_lock(&self) -> TryLockResult<MutexGuard<'_, T>> {
            chaos::at_lock();
            match self.0.try_lock() {
                Ok(guard) => Ok(MutexGuard::new(guard)),
                Err(TryLockError::WouldBlock) => Err(TryLockError::WouldBlock),
                Err(TryLockError::Poisoned(poisoned)) => {
                    Err(TryLockError::Poisoned(PoisonError::new(MutexGuard::new(poisoned.into_inner()))))
                }
            }
        }
    }

    impl<'a, T> MutexGuard<'a, T> {
        fn new(guard: std::sync::MutexGuard<'a, T>) -> MutexGuard<'a, T> {
            MutexGuard(ManuallyDrop::new(guard))
        }
    }

    impl<T> Deref for MutexGuard<'_, T> {
        type Target = T;

        fn deref(&self) -> &T {
            &self.0
        }
    }

    impl<T> DerefMut for MutexGuard<'_, T> {
        fn deref_mut(&mut self) -> &mut T {
            &mut self.0
        }
    }

    impl<T> Drop for MutexGuard<'_, T> {
        fn drop(&mut self) {
            // SAFETY: the guard is dropped only here, and not used after.
            unsafe { ManuallyDrop::drop(&mut self.0) };
            chaos::at_lock();
        }
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
