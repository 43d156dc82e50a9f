//! The locks of what several schedulers share: [`ready`](super::ready) and [`slots`](crate::value::slots) take them from here, so
//! that `concurrency/` can give them loom's instead and try every interleaving of the same code.

pub use std::sync::{Mutex, MutexGuard};
