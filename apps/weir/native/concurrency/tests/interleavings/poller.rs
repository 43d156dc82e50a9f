//! A sleeping poller, its successor, and the thread of its pollset: no entry of the ready list is
//! lost.

use std::sync::OnceLock;
use std::time::Instant;

use loom::model;
use loom::sync::atomic::{AtomicBool, Ordering::SeqCst};
use loom::sync::{Arc, Notify};
use loom::thread;

use weir_concurrency::handle::{Handle, Target};
use weir_concurrency::ready::{Duty, Ready, Sleep, Wake};
use weir_concurrency::socket::{find, poll, serve as visit};

use crate::{Table, open, table};

/// Mailboxes of two pollers, by their index.
fn mailboxes() -> Arc<[Notify; 2]> {
    Arc::new([Notify::new(), Notify::new()])
}

/// Polls and sleeps until `visits` sockets were on the list, without any events of the kernel.
/// Stops early if a successor has taken over.
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

/// Wakes a poller through its mailbox.
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
                // One poll and half of the next; it never reads its mailbox.
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
        // The old poller may have served it.
        if frozen.join().expect("no panic") == 0 {
            assert_eq!(serve(&table, &pollset, new, &mailboxes[1], 1), 1);
        }
        caller.join().expect("no panic");
        assert_eq!(poll(&table, &*pollset, 0, old), None);
        assert_eq!(find(&table, handle).expect("nobody closes").visits, 1);
    });
}

/// The thread of a pollset. `names` stands for events of the kernel and of the waker; each is
/// reported once. Time stands still, so that no poller seems to stall.
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
            // After the wait it still knows of the event.
            Duty::Gather(_) => continue,
        }
        named = false;
    }
    served
}

#[test]
fn the_kernels_events_wake_a_poller_that_goes_to_sleep() {
    a_poller_that_goes_to_sleep_is_woken(false);
}

#[test]
fn a_stream_that_is_gathered_wakes_its_poller() {
    a_poller_that_goes_to_sleep_is_woken(true);
}

fn a_poller_that_goes_to_sleep_is_woken(after_streams: bool) {
    model(move || {
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
        // Other messages may end its sleep, too.
        while !woken.load(SeqCst) {
            pollset[0].polled(Instant::now(), after_streams);
            // A ready socket is reported as soon as the instance is armed.
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
        // Something else may wake it before.
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
