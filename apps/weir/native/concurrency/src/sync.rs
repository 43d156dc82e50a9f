//! The locks under the modules: loom's in its models, those of the engine otherwise.

#[cfg(loom)]
pub use loom::sync::{Mutex, MutexGuard};
#[cfg(not(loom))]
pub use std::sync::{Mutex, MutexGuard};
