//! Ending a listener and changing its options, while processes take connections from its queue.

use loom::model;
use loom::sync::Arc;
use loom::thread;

use weir_concurrency::listener::{Listener, Taken};

use crate::table;

#[test]
fn no_connection_outlives_its_listener() {
    model(|| {
        let (table, listener) = (table(), Arc::new(Listener::default()));
        listener.push(1);
        listener.push(2);
        let takers: Vec<_> = (0..2)
            .map(|_| {
                let (table, listener) = (table.clone(), listener.clone());
                thread::spawn(move || listener.take(&table, 0, true))
            })
            .collect();
        let (discarded, ended) = listener.end(&table);
        let taken = takers.into_iter().map(|taker| taker.join().expect("no panic"));
        let served = taken.filter(|taken| matches!(taken, Taken::Connection(_))).count();
        // Every connection with a process was found, and none is left in the queue.
        assert_eq!((ended, discarded), (served, 2 - served));
        assert_eq!(listener.take(&table, 0, true), Taken::Nothing);
    });
}

#[test]
fn a_connection_whose_process_died_is_closed_with_its_listener() {
    model(|| {
        let (table, listener) = (table(), Arc::new(Listener::default()));
        listener.push(1);
        let taker = {
            let (table, listener) = (table.clone(), listener.clone());
            thread::spawn(move || listener.take(&table, 0, false))
        };
        let (_, ended) = listener.end(&table);
        let taken = taker.join().expect("no panic");
        assert!(matches!(taken, Taken::Dead | Taken::Nothing));
        assert_eq!((ended, listener.discarded()), (0, 1));
    });
}

#[test]
fn a_connection_that_comes_after_a_change_begins_with_it() {
    model(|| {
        let (table, listener) = (table(), Arc::new(Listener::default()));
        // The first connection came before the change; a process with the old options may take it.
        listener.push(1);
        let taker = {
            let (table, listener) = (table.clone(), listener.clone());
            thread::spawn(move || {
                let taken = [listener.take(&table, 0, true), listener.take(&table, 0, true)];
                let count = taken.iter().filter(|taken| matches!(taken, Taken::Connection(_))).count();
                // The second connection came after the change.
                assert!(count <= 1, "{taken:?}");
                count
            })
        };
        listener.set_version(1);
        listener.push(2);
        let before = taker.join().expect("no panic");
        // Untaken connections are announced as often as necessary.
        assert!(listener.tell() >= 2 - before);
        for _ in before..2 {
            assert!(matches!(listener.take(&table, 1, true), Taken::Connection(_)));
        }
    });
}
