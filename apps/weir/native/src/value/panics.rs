//! Panics of the library. None is expected. A panic loses the operation in progress, is counted,
//! and is logged.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::shared::Shared;
use super::sync::{self, Mutex};

/// The panics of this process.
pub struct Panics {
    count: AtomicU64,
    last: Mutex<String>,
}

pub static PANICS: Shared<Panics> = Shared::new(Panics { count: AtomicU64::new(0), last: Mutex::new(String::new()) });

/// Starts counting panics of this library. They are still reported on standard error.
pub fn watch() {
    static WATCHED: Once = Once::new();
    WATCHED.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            PANICS.count.fetch_add(1, Relaxed);
            if let Some(mut last) = sync::try_lock(&PANICS.last) {
                *last = panic.to_string();
            }
            before(panic);
        }));
    });
}

/// The number of panics, and the message of the last one.
pub fn so_far() -> (u64, String) {
    (PANICS.count.load(Relaxed), sync::lock(&PANICS.last, || {}).clone())
}

/// Calls `work` until it returns without a panic. `work` must take each item off its list before
/// it works on it, so that it continues behind an item that panicked. Returns whether there was a
/// panic.
pub fn survive(mut work: impl FnMut()) -> bool {
    let mut panicked = false;
    while catch_unwind(AssertUnwindSafe(&mut work)).is_err() {
        panicked = true;
    }
    panicked
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_costs_what_it_was_about_and_nothing_else() {
        watch();
        let before = so_far().0;
        let (mut list, mut done) = ((1..=5).collect::<std::collections::VecDeque<u32>>(), Vec::new());
        let panicked = survive(|| {
            while let Some(next) = list.pop_front() {
                assert!(next != 2 && next != 5, "not {next}");
                done.push(next);
            }
        });
        assert_eq!((panicked, done), (true, vec![1, 3, 4]));
        assert!(!survive(|| {}));
        let (count, last) = so_far();
        assert!(count >= before + 2 && last.contains("not 5"), "{count}: {last}");
    }
}
