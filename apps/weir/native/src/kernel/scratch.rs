//! What a read goes into before its size is known.

use std::cell::RefCell;

/// Bytes of it.
pub const SCRATCH: usize = 64 * 1024;

thread_local! {
    /// One for each thread: a visit is over before the next begins.
    pub static BUFFER: RefCell<Box<[u8]>> = RefCell::new(vec![0; SCRATCH].into_boxed_slice());
}
