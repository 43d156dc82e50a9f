//! Statics that survive an upgrade of the library.
//!
//! The VM may load a newer library beside the running one. The newer one then takes over the state
//! of the old one, in particular all sockets: both use the same values, and the old library stays
//! mapped. So every static that is more than a cache is a [`Shared`], and is in the list of the
//! boundary.

use std::ops::Deref;
use std::ptr::{from_ref, null_mut};
use std::sync::atomic::{AtomicPtr, Ordering};

/// A static of this library, or that of an earlier one.
pub struct Shared<T: 'static> {
    /// The static of the earlier library, if there is one.
    earlier: AtomicPtr<T>,
    own: T,
}

impl<T: Sync> Shared<T> {
    /// Creates a static of this library.
    pub const fn new(own: T) -> Shared<T> {
        Shared { earlier: AtomicPtr::new(null_mut()), own }
    }
}

impl<T: Sync> Deref for Shared<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        let earlier = self.earlier.load(Ordering::Acquire);
        // SAFETY: `take_over` was given a value that lives as long as the process.
        unsafe { earlier.as_ref() }.unwrap_or(&self.own)
    }
}

/// A [`Shared`] of any type, for the list of all of them.
pub trait Inherited: Sync {
    /// What must be equal in two libraries that share the value, as far as the compiler knows it:
    /// the name of the type with its constants, its size and its alignment.
    fn layout(&self) -> (&'static str, usize, usize);

    /// The address of the value.
    fn address(&'static self) -> *const ();

    /// Uses the value of an earlier library from now on.
    ///
    /// # Safety
    ///
    /// The address is that of the same part; its layout and everything that it refers to are the
    /// same, and it is never freed. This part has not been used yet.
    unsafe fn take_over(&'static self, address: *const ());
}

impl<T: Sync> Inherited for Shared<T> {
    fn layout(&self) -> (&'static str, usize, usize) {
        (std::any::type_name::<T>(), size_of::<T>(), align_of::<T>())
    }

    fn address(&'static self) -> *const () {
        from_ref::<T>(self).cast()
    }

    unsafe fn take_over(&'static self, address: *const ()) {
        self.earlier.store(address.cast_mut().cast(), Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU32;
    use std::sync::atomic::Ordering::Relaxed;

    #[test]
    fn a_part_that_was_taken_over_is_the_earlier_one() {
        static EARLIER: Shared<AtomicU32> = Shared::new(AtomicU32::new(7));
        static LATER: Shared<AtomicU32> = Shared::new(AtomicU32::new(0));
        assert_eq!(LATER.load(Relaxed), 0);
        // SAFETY: a static of the same type.
        unsafe { LATER.take_over(EARLIER.address()) };
        LATER.store(8, Relaxed);
        assert_eq!((EARLIER.load(Relaxed), LATER.address()), (8, EARLIER.address()));
    }
}
