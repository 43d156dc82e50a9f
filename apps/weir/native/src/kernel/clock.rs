//! The monotonic clock.

use std::num::NonZeroU64;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// A moment of the monotonic clock. As one number it is cheaper to keep and to compare than the standard library's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd)]
pub struct Nanos(NonZeroU64);

impl Nanos {
    /// This moment.
    #[inline]
    pub fn now() -> Nanos {
        let now = clock_gettime(ClockId::Monotonic);
        Nanos(NonZeroU64::MIN.saturating_add(now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64))
    }

    /// As the VM's own clock has it, but for a constant.
    pub fn nanoseconds(self) -> u64 {
        self.0.get()
    }

    /// Whole seconds of the clock.
    pub fn seconds(self) -> u64 {
        self.0.get() / 1_000_000_000
    }

    /// The time since an earlier moment.
    #[inline]
    pub fn since(self, earlier: Nanos) -> Duration {
        Duration::from_nanos(self.nanoseconds_since(earlier))
    }

    /// The same in nanoseconds.
    #[inline]
    pub fn nanoseconds_since(self, earlier: Nanos) -> u64 {
        self.0.get().saturating_sub(earlier.0.get())
    }

    /// A later moment.
    #[cfg(test)]
    pub fn after(self, nanoseconds: u64) -> Nanos {
        Nanos(self.0.saturating_add(nanoseconds))
    }
}
