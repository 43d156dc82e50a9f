//! A build in which what is rare is common: with the feature `chaos`, threads are held up at random where the order of things
//! matters. Without it there is nothing of this in the library.
//!
//! A thread is held up before each lock and after each unlock ([`sync`](super::sync)), and between the named steps of a life,
//! where another thread may see what is half done. The numbers are those of the seed in the environment variable `WEIR_CHAOS`,
//! which `scripts/test` has checked; which thread draws which number is up to the kernel, so a seed narrows a search and no more.

/// Between two steps of something's life, each whole by itself. Here is where others come between.
#[inline(always)]
pub fn between() {
    #[cfg(feature = "chaos")]
    odds::hold_up(&odds::BETWEEN);
}

/// Before a lock and after an unlock.
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

    /// How often in 4096 a thread gives the processor away, sleeps some microseconds, sleeps milliseconds.
    pub struct Odds {
        yields: u64,
        naps: u64,
        sleeps: u64,
    }

    /// An operation takes a dozen locks: this costs it some 20 microseconds.
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

    /// A number of this thread's: xorshift, whose state is never zero.
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
