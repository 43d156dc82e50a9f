//! Types that need neither the VM nor the kernel.
//!
//! Handles, slots, ready lists, packets, HTTP, admission rules, queues, counters, times, options,
//! memberships, panics. Each has unit tests. `concurrency/` tests shared structures in every
//! interleaving, and `fuzz/` tests parsers of what peers send. Modules here use only each other.

pub mod active;
pub mod admission;
pub mod arrivals;
pub mod chaos;
pub mod counters;
pub mod division;
pub mod handle;
pub mod http;
pub mod input_buffer;
pub mod latency;
pub mod membership;
pub mod options;
pub mod packet;
pub mod panics;
pub mod places;
pub mod quota;
pub mod readable;
pub mod ready;
pub mod schedules;
pub mod send_queue;
pub mod shared;
pub mod slots;
pub mod statistics;
pub mod sync;
pub mod vacancies;
pub mod work;
