//! Random delays that make races likely: with the feature `chaos`, threads are delayed wherever
//! order matters. Without it, the library contains none of this.
//!
//! A thread may be delayed before each lock, after each unlock ([`sync`](super::sync)), and
//! between named steps where another thread may see an intermediate state. The random numbers
//! start from the seed in the environment variable `WEIR_CHAOS`, which `scripts/test` has checked.
//! Which thread draws which number depends on the kernel, so a seed narrows a search, but does not
//! reproduce a run.

/// A possible delay between two steps, each complete, where other threads may interfere.
#[inline(always)]
pub fn between() {
    #[cfg(feature = "chaos")]
    odds::hold_up(&odds::BETWEEN);
}

/// A possible delay before a lock or after an unlock.
#[cfg(feature = "chaos")]
pub fn at_lock() {
    odds::hold_up(&odds::AT_LOCK);
}

#[cfg(feature = "chaos")]
mod odds {
    use std::cell::Cell;
    use std::hash::{DefaultHasher, Hash, Hasher};
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
    use std::thread;
    use std::time::Duration;

    /// Chances in 4096 that a thread yields, sleeps some microseconds, or sleeps milliseconds.
    pub struct Odds {
        yields: u64,
        naps: u64,
        sleeps: u64,
    }

    /// An operation takes a dozen locks, so these delays add about 20 microseconds.
    pub const AT_LOCK: Odds = Odds { yields: 256, naps: 16, sleeps: 1 };
    pub const BETWEEN: Odds = Odds { yields: 1024, naps: 256, sleeps: 16 };

    pub fn hold_up(odds: &Odds) {
        let number = draw();
        let (chance, amount) = (number % 4096, number >> 32);
        if chance < odds.sleeps {
            thread::sleep(Duration::from_micros(1_000 + amount % 3_000));
        } else if chance < odds.sleeps + odds.naps {
            thread::sleep(Duration::from_micros(amount % 200));
        } else if chance < odds.sleeps + odds.naps + odds.yields {
            thread::yield_now();
        }
    }

    /// The thread's next random number: xorshift, whose state is never zero.
    fn draw() -> u64 {
        thread_local! {
            static STATE: Cell<u64> = Cell::new(first());
        }
        let mut state = STATE.get();
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        STATE.set(state);
        state
    }

    fn first() -> u64 {
        static SEED: OnceLock<u64> = OnceLock::new();
        static THREADS: AtomicU64 = AtomicU64::new(0);
        let seed = SEED.get_or_init(|| {
            let given = std::env::var("WEIR_CHAOS").ok().and_then(|seed| seed.parse().ok());
            given.unwrap_or_default()
        });
        let mut hasher = DefaultHasher::new();
        (seed, THREADS.fetch_add(1, Relaxed)).hash(&mut hasher);
        hasher.finish() | 1
    }
}
