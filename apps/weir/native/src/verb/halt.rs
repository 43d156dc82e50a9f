//! Flushes queued output when the VM ends, like ports.

use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::socket::table;
use crate::verb::output;

/// How long no progress is accepted, and how long a flush takes at most: a peer that does not read
/// must not keep the VM from ending. gen_tcp:close/1 also waits for the first.
const STALL: Duration = Duration::from_secs(5);
const LIMIT: Duration = Duration::from_secs(30);

/// Pause between two passes.
const PAUSE: Duration = Duration::from_millis(1);

/// Writes queued output of all sockets. No process runs any more and nothing polls, so it goes
/// over the sockets in a loop. It tries sockets that a thread has locked again.
pub fn flush() {
    let begun = Instant::now();
    let mut moved = begun;
    loop {
        let Drained { taken, left, locked } = drain_all();
        let now = Instant::now();
        if taken > 0 {
            moved = now;
        }
        if left + locked == 0 || now - moved > STALL || now - begun > LIMIT {
            return;
        }
        sleep(PAUSE);
    }
}

/// Result of a pass: bytes written, bytes left, and locked sockets that were skipped.
#[derive(Default)]
struct Drained {
    taken: usize,
    left: usize,
    locked: usize,
}

fn drain_all() -> Drained {
    let mut total = Drained::default();
    for chunk in 0.. {
        let visited = table::visit_unlocked(chunk, |socket| {
            let (taken, left) = output::drain(socket);
            total.taken += taken;
            total.left += left;
        });
        match visited {
            Some(locked) => total.locked += locked,
            None => break,
        }
    }
    total
}
