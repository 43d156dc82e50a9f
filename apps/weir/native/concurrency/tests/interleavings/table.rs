//! The table of sockets: slots are closed, reused, moved or joined while other threads have their
//! handles.

use loom::model;
use loom::sync::Arc;
use loom::thread;

use weir_concurrency::handle::Handle;
use weir_concurrency::ready::Ready;
use weir_concurrency::slots::{Lookup, Occupant};
use weir_concurrency::socket::{close, find, poll, run_on};

use crate::{open, table};

#[test]
fn a_late_call_finds_nothing_of_the_next_socket() {
    model(|| {
        let table = table();
        let first = open(&table).expect("room");
        let second = open(&table).expect("room");
        let closer = {
            let table = table.clone();
            thread::spawn(move || close(&table, first))
        };
        let late = {
            let table = table.clone();
            // A call, an event or the death of an owner knows only the handle.
            thread::spawn(move || {
                if let Some(mut socket) = find(&table, first) {
                    socket.visits += 1;
                }
            })
        };
        // The slot may be vacant already.
        let next = open(&table);
        closer.join().expect("no panic");
        late.join().expect("no panic");
        assert!(find(&table, first).is_none());
        assert!(find(&table, second).is_some());
        let next = next.or_else(|| open(&table)).expect("there is room after the close");
        assert_eq!((next.slot(), next.generation()), (first.slot(), first.generation().wrapping_add(1)));
        assert_eq!(find(&table, next).expect("it is open").visits, 0);
    });
}

#[test]
fn two_that_close_close_once() {
    model(|| {
        let table = table();
        let handle = open(&table).expect("room");
        let owner_died = {
            let table = table.clone();
            thread::spawn(move || close(&table, handle))
        };
        close(&table, handle);
        owner_died.join().expect("no panic");
        // A slot that is freed twice would be given out twice.
        let opened: Vec<Handle> = std::iter::from_fn(|| open(&table)).collect();
        assert_eq!(opened.len(), 2);
        assert_ne!(opened[0].slot(), opened[1].slot());
    });
}

#[test]
fn no_slot_is_given_out_twice() {
    model(|| {
        let table = table();
        let handle = open(&table).expect("room");
        let openers: Vec<_> = (0..2)
            .map(|_| {
                let table = table.clone();
                thread::spawn(move || open(&table))
            })
            .collect();
        close(&table, handle);
        let opened: Vec<Handle> = openers.into_iter().filter_map(|opener| opener.join().expect("no panic")).collect();
        assert!(!opened.is_empty());
        for &handle in &opened {
            assert!(find(&table, handle).is_some());
        }
        if let [one, other] = opened[..] {
            assert_ne!(one.slot(), other.slot());
        }
    });
}

#[test]
fn what_one_scheduler_leaves_vacant_another_finds() {
    model(|| {
        let table = table();
        let (first, second) = (open(&table).expect("room"), open(&table).expect("room"));
        let closers = [first, second].map(|handle| {
            let table = table.clone();
            thread::spawn(move || {
                run_on(handle.slot() as usize);
                close(&table, handle);
                open(&table)
            })
        });
        // A thread that has closed a socket finds a slot, even if its own is taken.
        run_on(2);
        let third = open(&table);
        let opened: Vec<Handle> =
            closers.into_iter().filter_map(|closer| closer.join().expect("no panic")).chain(third).collect();
        assert_eq!(opened.len(), 2);
        assert_ne!(opened[0].slot(), opened[1].slot());
        assert_eq!(table.occupied(), 2);
    });
}

#[test]
fn a_close_meets_a_poll_and_a_call_and_the_slot_is_used_again() {
    model(|| {
        let (table, pollset) = (table(), Arc::new([Ready::new()]));
        let handle = open(&table).expect("room");
        let token = pollset[0].claim(0);
        let poller = {
            let (table, pollset) = (table.clone(), pollset.clone());
            thread::spawn(move || poll(&table, &*pollset, 0, token))
        };
        let caller = {
            let (table, pollset) = (table.clone(), pollset.clone());
            thread::spawn(move || {
                if let Some(mut socket) = find(&table, handle) {
                    socket.enqueue(&*pollset, |_| {});
                }
            })
        };
        close(&table, handle);
        let next = {
            let mut socket = table.allocate().expect("room");
            let next = socket.open();
            socket.enqueue(&*pollset, |_| {});
            next
        };
        poller.join().expect("no panic");
        caller.join().expect("no panic");
        // A socket with the mark `queued` is on the list, whatever happened to the previous socket
        // in its slot.
        let queued = find(&table, next).expect("it is open").is_queued();
        let visits = find(&table, next).expect("it is open").visits;
        assert_eq!(visits, usize::from(!queued));
        poll(&table, &*pollset, 0, token);
        let socket = find(&table, next).expect("it is open");
        assert_eq!((socket.is_queued(), socket.visits), (false, 1));
    });
}

#[test]
fn an_accept_that_holds_its_listener_waits_for_no_cycle() {
    model(|| {
        let (table, pollset) = (table(), Arc::new([Ready::new()]));
        let listener = open(&table).expect("room");
        let connection = open(&table).expect("room");
        let token = pollset[0].claim(0);
        let closer = {
            let (table, pollset) = (table.clone(), pollset.clone());
            thread::spawn(move || {
                let mut socket = find(&table, connection).expect("nobody else closes it");
                socket.close();
                // The closing code's caller continues, which must not affect the next socket in
                // the slot.
                socket.enqueue(&*pollset, |_| {});
                socket.visits += 1;
            })
        };
        let poller = {
            let (table, pollset) = (table.clone(), pollset.clone());
            thread::spawn(move || poll(&table, &*pollset, 0, token))
        };
        {
            let mut accepting = find(&table, listener).expect("nobody closes it");
            // `None` if the table is full; or the slot of the connection, which is just being
            // closed.
            if let Some(mut accepted) = table.allocate() {
                accepted.open();
                accepted.enqueue(&*pollset, |_| {});
            }
            accepting.enqueue(&*pollset, |_| {});
        }
        closer.join().expect("no panic");
        poller.join().expect("no panic");
        assert!(matches!(table.lookup(connection), Lookup::Gone));
        while poll(&table, &*pollset, 0, token) != Some(0) {}
        let socket = find(&table, listener).expect("nobody closes it");
        assert_eq!((socket.is_queued(), socket.visits, socket.handle()), (false, 1, listener));
    });
}

#[test]
fn a_socket_that_moves_is_visited_at_its_new_pollset() {
    model(|| {
        let (table, pollsets) = (table(), Arc::new([Ready::new(), Ready::new()]));
        let handle = open(&table).expect("room");
        let tokens = [pollsets[0].claim(0), pollsets[1].claim(1)];
        let mover = {
            let (table, pollsets) = (table.clone(), pollsets.clone());
            thread::spawn(move || {
                let mut socket = find(&table, handle).expect("nobody closes");
                socket.move_to(&*pollsets, 1, |_| {});
            })
        };
        let old = {
            let (table, pollsets) = (table.clone(), pollsets.clone());
            thread::spawn(move || poll(&table, &*pollsets, 0, tokens[0]))
        };
        find(&table, handle).expect("nobody closes").enqueue(&*pollsets, |_| {});
        mover.join().expect("no panic");
        old.join().expect("no panic");
        // The old list may still name it, but a visit from there must not clear the mark for the
        // new list.
        poll(&table, &*pollsets, 0, tokens[0]);
        assert!(find(&table, handle).expect("nobody closes").is_queued());
        let before = find(&table, handle).expect("nobody closes").visits;
        poll(&table, &*pollsets, 1, tokens[1]);
        let socket = find(&table, handle).expect("nobody closes");
        assert_eq!((socket.is_queued(), socket.visits), (false, before + 1));
    });
}

#[test]
fn two_who_join_the_same_sockets_do_not_wait_for_each_other() {
    model(|| {
        let table = table();
        let pair: Vec<Handle> = (0..2).filter_map(|_| open(&table)).collect();
        let joiners: Vec<_> = [(pair[0], pair[1]), (pair[1], pair[0])]
            .into_iter()
            .map(|(one, other)| {
                let table = table.clone();
                thread::spawn(move || match table.lookup_both(one, other) {
                    (Lookup::Open(mut one), Lookup::Open(mut other)) => {
                        one.close();
                        other.close();
                        true
                    }
                    (Lookup::Gone, Lookup::Gone) => false,
                    _ => panic!("one of two that go together"),
                })
            })
            .collect();
        let joined: Vec<bool> = joiners.into_iter().map(|joiner| joiner.join().expect("no panic")).collect();
        assert_eq!(joined.iter().filter(|&&joined| joined).count(), 1);
    });
}

#[test]
fn two_are_joined_while_one_closes_and_its_slot_is_used_again() {
    model(|| {
        let table = table();
        let pair: Vec<Handle> = (0..2).filter_map(|_| open(&table)).collect();
        let (one, other) = (pair[0], pair[1]);
        let closer = {
            let table = table.clone();
            thread::spawn(move || {
                close(&table, other);
                open(&table)
            })
        };
        match table.lookup_both(other, one) {
            (Lookup::Open(mut other), Lookup::Open(mut one)) => {
                other.close();
                one.close();
            }
            (Lookup::Gone, Lookup::Open(_)) => {}
            _ => panic!("the first was open, the second was"),
        }
        closer.join().expect("no panic").expect("room");
    });
}
