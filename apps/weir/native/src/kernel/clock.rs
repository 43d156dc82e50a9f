//! The monotonic clock.

use std::num::NonZeroU64;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// A time of the monotonic clock. A single number is cheaper to store and compare than the
/// standard library's type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd)]
pub struct Nanos(NonZeroU64);

impl Nanos {
    /// The current time.
    #[inline]
    pub fn now() -> Nanos {
        let now = clock_gettime(ClockId::Monotonic);
        Nanos(NonZeroU64::MIN.saturating_add(now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64))
    }

    /// Nanoseconds; differs from the VM's own clock only by a constant.
    pub fn nanoseconds(self) -> u64 {
        self.0.get()
    }

    /// Whole seconds of the clock.
    pub fn seconds(self) -> u64 {
        self.0.get() / 1_000_000_000
    }

    /// The time since an earlier one.
    #[inline]
    pub fn since(self, earlier: Nanos) -> Duration {
        Duration::from_nanos(self.nanoseconds_since(earlier))
    }

    /// Nanoseconds since an earlier time.
    #[inline]
    pub fn nanoseconds_since(self, earlier: Nanos) -> u64 {
        self.0.get().saturating_sub(earlier.0.get())
    }

    /// A later time.
    #[cfg(test)]
    pub fn after(self, nanoseconds: u64) -> Nanos {
        Nanos(self.0.saturating_add(nanoseconds))
    }
}
