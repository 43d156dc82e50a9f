//! The two clocks that measurements are made with.

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds in a second.
pub const SECOND: u64 = 1_000_000_000;

/// Nanoseconds in a millisecond.
pub const MILLISECOND: u64 = 1_000_000;

/// `CLOCK_MONOTONIC` in nanoseconds. The clock is the same in every process of a machine, so a
/// client can compare a server's timestamp with its own time. Costs no system call if the kernel's
/// vDSO serves it.
#[inline]
pub fn now() -> u64 {
    read(ClockId::Monotonic)
}

/// CPU time that all threads of this process have used, in nanoseconds.
pub fn process_cpu() -> u64 {
    read(ClockId::ProcessCPUTime)
}

#[inline]
fn read(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    time.tv_sec as u64 * SECOND + time.tv_nsec as u64
}
