//! The end of the VM: what sockets have taken from their senders goes out first, as ports do it.

use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::socket::table;
use crate::verb::output;

/// How long nothing may move, and how long it takes at most: a peer that does not read should not keep the VM from
/// ending. The first is what gen_tcp:close/1 waits, too.
const STALL: Duration = Duration::from_secs(5);
const LIMIT: Duration = Duration::from_secs(30);

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(1);

/// Writes what is queued on all sockets. No process runs any more, and nobody begins to poll: the sockets are looked at in turn. One that
/// a thread still has locked may have something left, too.
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

/// What has come of a look at all sockets: bytes that were written, bytes that are left, sockets that could not be looked at.
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
