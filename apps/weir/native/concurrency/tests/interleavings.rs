//! Every interleaving of a few threads on the socket table, a ready list and the members of a group. A lost wake-up, a
//! deadlock and a broken assertion all fail.
#![cfg(loom)]

use std::sync::OnceLock;
use std::time::Instant;

use loom::model;
use loom::sync::atomic::{AtomicBool, Ordering::SeqCst};
use loom::sync::{Arc, Notify};
use loom::thread;

use weir_concurrency::group::Group;
use weir_concurrency::handle::{Handle, Target};
use weir_concurrency::ready::{Duty, Ready, Sleep, Wake};
use weir_concurrency::slots::{Lookup, Occupant, Slots, Vacant};
use weir_concurrency::socket::{Socket, close, find, poll, serve as visit};
use weir_concurrency::sync::Mutex;

/// Two chunks of one slot each: the second chunk is made while others look things up.
type Table = Slots<Socket, 2, 1>;

fn table() -> Arc<Table> {
    Arc::new(Slots::new(Mutex::new(Vacant::new())))
}

fn open(table: &Table) -> Option<Handle> {
    table.allocate().map(|mut socket| socket.open())
}

/// Mailboxes of two pollers; a poller's name is its index.
fn mailboxes() -> Arc<[Notify; 2]> {
    Arc::new([Notify::new(), Notify::new()])
}

/// Polls and sleeps until `visits` sockets were on the list; as a poller does that always finds nothing from the kernel.
/// Stops early where a successor has taken over.
fn serve(table: &Table, pollset: &[Ready<usize>; 1], token: u32, mailbox: &Notify, visits: usize) -> usize {
    let mut served = 0;
    while served < visits {
        match poll(table, pollset, 0, token) {
            None => return served,
            Some(0) => match pollset[0].sleep(token, false, || true) {
                Sleep::Asleep => mailbox.wait(),
                Sleep::Busy => {}
                Sleep::Stale => return served,
            },
            Some(count) => served += count,
        }
    }
    served
}

/// Wakes a poller by its mailbox.
fn wake(mailboxes: &[Notify; 2]) -> impl Fn(Wake<usize>) {
    |woken| match woken {
        Wake::Nobody => {}
        Wake::Poller(poller) => mailboxes[poller].notify(),
        Wake::Thread => panic!("no thread serves"),
    }
}

#[test]
fn nobody_is_forgotten_by_a_poller_that_goes_to_sleep() {
    model(|| {
        let (table, pollset) = (table(), Arc::new([Ready::new()]));
        let mailboxes = mailboxes();
        let sockets: Vec<Handle> = (0..2).filter_map(|_| open(&table)).collect();
        let token = pollset[0].claim(0);
        let callers: Vec<_> = sockets
            .iter()
            .map(|&handle| {
                let (table, pollset, mailboxes) = (table.clone(), pollset.clone(), mailboxes.clone());
                thread::spawn(move || {
                    let mut socket = find(&table, handle).expect("nobody closes");
                    socket.enqueue(&*pollset, wake(&mailboxes));
                })
            })
            .collect();
        assert_eq!(serve(&table, &pollset, token, &mailboxes[0], 2), 2);
        for caller in callers {
            caller.join().expect("no panic");
        }
        for handle in sockets {
            assert_eq!(find(&table, handle).expect("nobody closes").visits, 1);
        }
    });
}

#[test]
fn nobody_is_forgotten_when_a_successor_takes_over() {
    model(|| {
        let (table, pollset) = (table(), Arc::new([Ready::new()]));
        let mailboxes = mailboxes();
        let handle = open(&table).expect("room");
        let old = pollset[0].claim(0);
        let frozen = {
            let (table, pollset) = (table.clone(), pollset.clone());
            thread::spawn(move || {
                // One poll and half of another; it never reads its mail.
                let served = poll(&table, &*pollset, 0, old);
                let _ = pollset[0].sleep(old, false, || true);
                served.unwrap_or(0)
            })
        };
        let caller = {
            let (table, pollset, mailboxes) = (table.clone(), pollset.clone(), mailboxes.clone());
            thread::spawn(move || {
                let mut socket = find(&table, handle).expect("nobody closes");
                socket.enqueue(&*pollset, wake(&mailboxes));
            })
        };
        let new = pollset[0].claim(1);
        // The old one may have been the one that served.
        if frozen.join().expect("no panic") == 0 {
            assert_eq!(serve(&table, &pollset, new, &mailboxes[1], 1), 1);
        }
        caller.join().expect("no panic");
        assert_eq!(poll(&table, &*pollset, 0, old), None);
        assert_eq!(find(&table, handle).expect("nobody closes").visits, 1);
    });
}

/// The thread of a pollset: `names` are the kernel's, each of which is an edge that it hears of once; so is what wakes it.
/// No time passes, or the poller would seem not to come.
fn attend(
    table: &Table,
    pollset: &[Ready<usize>; 1],
    mailboxes: &[Notify; 2],
    names: &Notify,
    visits: usize,
    on_summon: impl Fn(),
) -> usize {
    static NOW: OnceLock<Instant> = OnceLock::new();
    let now = *NOW.get_or_init(Instant::now);
    let (mut served, mut named) = (0, false);
    while served < visits {
        match pollset[0].duty(named, now) {
            Duty::Summon(poller) => {
                on_summon();
                mailboxes[poller].notify();
                return served;
            }
            Duty::Serve(list) => served += visit(table, 0, list),
            Duty::Rest(_) | Duty::Watch(_) => {
                names.wait();
                named = true;
                continue;
            }
        }
        named = false;
    }
    served
}

#[test]
fn the_kernels_events_wake_a_poller_that_goes_to_sleep() {
    model(|| {
        let pollset = Arc::new([Ready::new()]);
        let (mailboxes, table) = (mailboxes(), table());
        let names = Arc::new(Notify::new());
        let token = pollset[0].claim(0);
        let woken = Arc::new(AtomicBool::new(false));
        let thread = {
            let (table, pollset, mailboxes, names) = (table.clone(), pollset.clone(), mailboxes.clone(), names.clone());
            let woken = woken.clone();
            thread::spawn(move || {
                let served = attend(&table, &pollset, &mailboxes, &names, 1, || woken.store(true, SeqCst));
                assert_eq!(served, 0);
            })
        };
        // Other messages may end its sleep as well.
        while !woken.load(SeqCst) {
            // What is ready is named as soon as the instance is armed.
            assert_eq!(
                pollset[0].sleep(token, false, || {
                    names.notify();
                    true
                }),
                Sleep::Asleep
            );
            mailboxes[0].wait();
            assert!(pollset[0].take(token, Instant::now()).is_some());
        }
        thread.join().expect("no panic");
    });
}

#[test]
fn nobody_is_forgotten_by_the_thread_that_serves() {
    model(|| {
        let (table, pollset) = (table(), Arc::new([Ready::new()]));
        let mailboxes = mailboxes();
        let names = Arc::new(Notify::new());
        let sockets: Vec<Handle> = (0..2).filter_map(|_| open(&table)).collect();
        let token = pollset[0].claim(0);
        assert_eq!(pollset[0].sleep(token, true, || true), Sleep::Asleep);
        let callers: Vec<_> = sockets
            .iter()
            .map(|&handle| {
                let (table, pollset, names) = (table.clone(), pollset.clone(), names.clone());
                thread::spawn(move || {
                    let mut socket = find(&table, handle).expect("nobody closes");
                    socket.enqueue(&*pollset, |woken| match woken {
                        Wake::Nobody => {}
                        Wake::Thread => names.notify(),
                        Wake::Poller(_) => panic!("the thread serves"),
                    });
                })
            })
            .collect();
        assert_eq!(attend(&table, &pollset, &mailboxes, &names, 2, || panic!("it serves itself")), 2);
        for caller in callers {
            caller.join().expect("no panic");
        }
        for handle in sockets {
            assert_eq!(find(&table, handle).expect("nobody closes").visits, 1);
        }
    });
}

#[test]
fn what_the_thread_keeps_is_the_pollers() {
    model(|| {
        let (table, pollset) = (table(), Arc::new([Ready::new()]));
        let mailboxes = mailboxes();
        let handle = open(&table).expect("room");
        let token = pollset[0].claim(0);
        assert_eq!(pollset[0].sleep(token, true, || true), Sleep::Asleep);
        let thread = {
            let (pollset, mailboxes) = (pollset.clone(), mailboxes.clone());
            thread::spawn(move || {
                pollset[0].keep(Target::Socket(handle));
                if let Some(poller) = pollset[0].resign() {
                    mailboxes[poller].notify();
                }
            })
        };
        // It may be woken by something else before.
        let mut found = pollset[0].take(token, Instant::now()).expect("ours").list.len();
        while found == 0 {
            if pollset[0].sleep(token, false, || true) == Sleep::Asleep {
                mailboxes[0].wait();
            }
            found = pollset[0].take(token, Instant::now()).expect("ours").list.len();
        }
        assert_eq!(found, 1);
        thread.join().expect("no panic");
    });
}

#[test]
fn two_that_claim_are_one_poller() {
    model(|| {
        let pollset = Arc::new([Ready::new()]);
        let other = {
            let pollset = pollset.clone();
            thread::spawn(move || (pollset[0].claim(0), 0))
        };
        let mine = (pollset[0].claim(1), 1);
        let theirs = other.join().expect("no panic");
        assert_ne!(mine.0, theirs.0);
        let (last, stale) = if mine.0 > theirs.0 { (mine, theirs) } else { (theirs, mine) };
        assert_eq!(pollset[0].sleep(stale.0, false, || true), Sleep::Stale);
        assert_eq!(pollset[0].sleep(last.0, false, || true), Sleep::Asleep);
        assert_eq!(pollset[0].push(Target::Socket(Handle::new(0, 0))), Wake::Poller(last.1));
    });
}

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
            // A call, an event or the death of an owner: all that they know is the handle.
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
        // Given back twice, the slot would be given out twice.
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
        // A socket that believes to be on the list is there, whatever stood there for the one before.
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
                socket.enqueue(&*pollset, |_| {});
                table.vacate(&mut socket);
            })
        };
        let poller = {
            let (table, pollset) = (table.clone(), pollset.clone());
            thread::spawn(move || poll(&table, &*pollset, 0, token))
        };
        {
            let mut accepting = find(&table, listener).expect("nobody closes it");
            // Full, or the connection's slot, whose last socket is just being closed.
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
        // The old list may still name it: that visit must not be the one that the new list is for.
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
                        table.vacate(&mut one);
                        table.vacate(&mut other);
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
                table.vacate(&mut other);
                table.vacate(&mut one);
            }
            (Lookup::Gone, Lookup::Open(_)) => {}
            _ => panic!("the first was open, the second was"),
        }
        closer.join().expect("no panic").expect("room");
    });
}

/// A group whose members are the first so many sockets.
fn group(members: usize, sockets: usize) -> Arc<Group> {
    let group = Group::new(sockets);
    for member in 0..members {
        assert_eq!(group.join(member), 0);
    }
    Arc::new(group)
}

fn got(group: &Group, member: usize) -> Vec<u32> {
    group.member(member).got.clone()
}

#[test]
fn who_leaves_a_group_costs_nobody_a_message() {
    model(|| {
        let group = group(3, 3);
        group.broadcast();
        let poller = {
            let group = group.clone();
            thread::spawn(move || group.serve(0))
        };
        let broadcaster = {
            let group = group.clone();
            thread::spawn(move || group.broadcast())
        };
        group.leave(0);
        let left_with = got(&group, 0);
        poller.join().expect("no panic");
        broadcaster.join().expect("no panic");
        group.serve(0);
        // What has come till then, and nothing after it.
        assert!([1, 2].starts_with(&left_with));
        assert_eq!(got(&group, 0), left_with);
        for member in [1, 2] {
            assert_eq!(got(&group, member), [1, 2]);
        }
    });
}

#[test]
fn who_joins_a_group_gets_all_that_follows() {
    model(|| {
        let group = group(1, 2);
        group.broadcast();
        let poller = {
            let group = group.clone();
            thread::spawn(move || group.serve(0))
        };
        let broadcaster = {
            let group = group.clone();
            thread::spawn(move || {
                group.broadcast();
                group.broadcast();
            })
        };
        let before = group.join(1);
        poller.join().expect("no panic");
        broadcaster.join().expect("no panic");
        group.serve(0);
        assert_eq!(got(&group, 0), [1, 2, 3]);
        assert_eq!(got(&group, 1), (before + 1..=3).collect::<Vec<u32>>());
    });
}

#[test]
fn who_moves_gets_every_message_of_a_group_once_and_in_order() {
    model(|| {
        let group = group(2, 2);
        group.broadcast();
        let poller = {
            let group = group.clone();
            thread::spawn(move || group.serve(0))
        };
        let mover = {
            let group = group.clone();
            thread::spawn(move || group.move_over(0))
        };
        group.broadcast();
        group.serve(1);
        poller.join().expect("no panic");
        mover.join().expect("no panic");
        for pollset in [0, 1] {
            group.serve(pollset);
        }
        for member in [0, 1] {
            assert_eq!(got(&group, member), [1, 2]);
        }
    });
}

#[test]
fn a_second_poller_does_not_overtake_the_first() {
    model(|| {
        let group = group(2, 2);
        group.broadcast();
        group.broadcast();
        let first = {
            let group = group.clone();
            thread::spawn(move || group.serve(0))
        };
        group.serve(0);
        first.join().expect("no panic");
        for member in [0, 1] {
            assert_eq!(got(&group, member), [1, 2]);
        }
    });
}
