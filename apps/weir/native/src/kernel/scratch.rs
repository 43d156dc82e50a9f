//! The buffer for reads of unknown size.

use std::cell::RefCell;

/// Size in bytes.
pub const SCRATCH: usize = 64 * 1024;

thread_local! {
    /// One per thread: a visit ends before the next begins.
    pub static BUFFER: RefCell<Box<[u8]>> = RefCell::new(vec![0; SCRATCH].into_boxed_slice());
}
