//! Which schedulers are online. The pollsets of the others get no new sockets.
//!
//! The VM does not report changes, so `weir_pollsets` checks and calls [`set`].

use std::sync::atomic::{AtomicU16, Ordering};

use crate::pollset::SCHEDULERS;
use crate::value::shared::Shared;

/// Number of online schedulers; they are the first ones.
pub static ONLINE: Shared<AtomicU16> = Shared::new(AtomicU16::new(SCHEDULERS as u16 - 1));

/// Sets the number of online schedulers.
pub fn set(count: u16) {
    ONLINE.store(count, Ordering::SeqCst);
}

/// Number of online schedulers.
pub fn count() -> u16 {
    ONLINE.load(Ordering::SeqCst)
}

/// Maps the pollset of an offline scheduler to that of an online one; returns any other unchanged.
pub fn pollset(index: u16) -> u16 {
    let online = count();
    if index <= online || usize::from(index) >= SCHEDULERS { index } else { (index - 1) % online + 1 }
}
