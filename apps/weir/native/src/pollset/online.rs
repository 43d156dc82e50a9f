//! Which schedulers are online: the pollsets of the others get nothing new.
//!
//! The VM tells nobody when it takes schedulers away or gives them back. `weir_pollsets` looks, and says it here.

use std::sync::atomic::{AtomicU16, Ordering};

use crate::pollset::SCHEDULERS;
use crate::value::shared::Shared;

/// How many schedulers are online, which are the first ones.
pub static ONLINE: Shared<AtomicU16> = Shared::new(AtomicU16::new(SCHEDULERS as u16 - 1));

/// Says how many schedulers are online.
pub fn set(count: u16) {
    ONLINE.store(count, Ordering::SeqCst);
}

/// How many schedulers are online.
pub fn count() -> u16 {
    ONLINE.load(Ordering::SeqCst)
}

/// The pollset for what was to be on this one: another, if this one is of a scheduler that is offline.
pub fn pollset(index: u16) -> u16 {
    let online = count();
    if index <= online || usize::from(index) >= SCHEDULERS { index } else { (index - 1) % online + 1 }
}
