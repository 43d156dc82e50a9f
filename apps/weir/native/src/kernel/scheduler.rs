//! The number of the calling scheduler.

use std::cell::Cell;

use super::thread;

/// Not determined yet, and a thread that is no scheduler. Schedulers are numbered from 1; dirty
/// schedulers count as none.
const UNKNOWN: u16 = u16::MAX;
const NONE: u16 = 0;

thread_local! {
    static CURRENT: Cell<u16> = const { Cell::new(UNKNOWN) };
}

/// The number of the calling scheduler; `None` on any other thread.
pub fn current() -> Option<u16> {
    let number = number();
    (number != NONE).then_some(number)
}

/// The number of the calling scheduler; zero on any other thread.
pub fn number() -> u16 {
    let mut number = CURRENT.get();
    if number == UNKNOWN {
        number = thread::name().and_then(|name| number_of(&name)).unwrap_or(NONE);
        CURRENT.set(number);
    }
    number
}

/// The scheduler number in a thread's name: `1_scheduler`, or `erts_sched_1` since OTP 26.
fn number_of(name: &str) -> Option<u16> {
    name.strip_suffix("_scheduler").or_else(|| name.strip_prefix("erts_sched_"))?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedulers_are_known_by_the_names_of_their_threads() {
        let names =
            ["1_scheduler", "12_scheduler", "erts_sched_7", "3_dirty_cpu_scheduler", "erts_dcpus_3", "weir_2", ""];
        assert_eq!(names.map(number_of), [Some(1), Some(12), Some(7), None, None, None, None]);
    }

    #[test]
    fn a_thread_that_is_no_scheduler_has_no_number() {
        assert_eq!((current(), number()), (None, 0));
    }
}
