//! Values: no VM, no kernel.
//!
//! Handles, slots, ready lists, packets, HTTP, rules of admission, queues, counters, times, options, memberships, panics. Each is tested by
//! itself, in every interleaving by `concurrency/` if schedulers share it, by the fuzzers of `fuzz/` if peers write it. May
//! use nothing but its neighbours here.

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
