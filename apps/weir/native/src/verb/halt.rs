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

/// Writes what is queued on all sockets. No process runs any more, and nobody polls: the sockets are looked at in turn.
pub fn flush() {
    let begun = Instant::now();
    let mut moved = begun;
    loop {
        let (taken, left) = drain_all();
        let now = Instant::now();
        if taken > 0 {
            moved = now;
        }
        if left == 0 || now - moved > STALL || now - begun > LIMIT {
            return;
        }
        sleep(PAUSE);
    }
}

/// A socket that is locked now is looked at the next time, unless it was locked by the thread that ends the VM.
fn drain_all() -> (usize, usize) {
    let mut total = (0, 0);
    let mut chunk = 0;
    while table::visit_unlocked(chunk, |socket| {
        let (taken, left) = output::drain(socket);
        total = (total.0 + taken, total.1 + left);
    }) {
        chunk += 1;
    }
    total
}
