//! The same models with real threads, many sockets, and chunks made during the test; for
//! ThreadSanitizer.
#![cfg(not(loom))]

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use weir_concurrency::group::Group;
use weir_concurrency::handle::Handle;
use weir_concurrency::ready::{Ready, Sleep, Wake};
use weir_concurrency::slots::Slots;
use weir_concurrency::socket::{Socket, close, find, poll};
use weir_concurrency::sync::Mutex;
use weir_concurrency::vacancies::Common;

type Table = Slots<Socket, 16, 4>;

const CALLERS: usize = 3;
const SOCKETS: usize = 200_000;

/// Polls and sleeps until the callers are done and the list is empty.
fn serve(table: &Table, pollset: &[Ready<usize>; 1], token: u32, inbox: &Receiver<()>, callers: &AtomicUsize) -> usize {
    let mut served = 0;
    loop {
        let done = callers.load(SeqCst) == 0;
        match poll(table, pollset, 0, token) {
            None => return served,
            Some(0) if done => return served,
            Some(0) => match pollset[0].sleep(token, false, || true) {
                Sleep::Asleep => inbox.recv().expect("callers outlive their sockets"),
                Sleep::Busy => {}
                Sleep::Stale => return served,
            },
            Some(count) => served += count,
        }
    }
}

/// Opens, pushes, visits and closes sockets of this and of other callers.
fn call(table: &Table, pollset: &[Ready<usize>; 1], mailbox: &SyncSender<()>, others: &Mutex<Vec<Handle>>) -> usize {
    let wake = |woken| {
        if let Wake::Poller(_) = woken {
            // A full mailbox wakes the poller, too.
            let _ = mailbox.try_send(());
        }
    };
    let mut opened = 0;
    for round in 0..SOCKETS {
        let handle = table.allocate().map(|mut socket| {
            let handle = socket.open();
            socket.enqueue(pollset, wake);
            handle
        });
        opened += usize::from(handle.is_some());
        let mut others = others.lock().expect("no test panics with it");
        others.extend(handle);
        let at = round % others.len().max(1);
        let (late, closing) = (others.get(at).copied(), others.len() > 40);
        if closing {
            others.swap_remove(at);
        }
        drop(others);
        let Some(late) = late else { continue };
        if let Some(mut socket) = find(table, late) {
            socket.enqueue(pollset, wake);
        }
        if closing {
            close(table, late);
        }
    }
    opened
}

#[test]
fn sockets_come_and_go_among_threads() {
    let table = Table::new(Mutex::new(Common::new()));
    let (pollset, others) = ([Ready::new()], Mutex::new(Vec::new()));
    let (mailbox, inbox) = sync_channel(1);
    let callers = AtomicUsize::new(CALLERS);
    let token = pollset[0].claim(0);
    thread::scope(|scope| {
        for _ in 0..CALLERS {
            let (table, pollset, others, callers, mailbox) = (&table, &pollset, &others, &callers, mailbox.clone());
            scope.spawn(move || {
                let opened = call(table, pollset, &mailbox, others);
                assert!(opened > SOCKETS / 4, "only {opened} of {SOCKETS} sockets found a slot");
                callers.fetch_sub(1, SeqCst);
                let _ = mailbox.try_send(());
            });
        }
        assert!(serve(&table, &pollset, token, &inbox, &callers) > 0);
    });
    for handle in others.into_inner().expect("no test panics with it") {
        let socket = find(&table, handle).expect("nobody closed it");
        assert!(!socket.is_queued() && socket.visits > 0);
    }
}

#[test]
fn pollers_take_over_from_each_other() {
    let table = Table::new(Mutex::new(Common::new()));
    let pollset = [Ready::new()];
    let handle = table.allocate().map(|mut socket| socket.open()).expect("room");
    let visits = AtomicUsize::new(0);
    thread::scope(|scope| {
        for poller in 0..CALLERS {
            let (table, pollset, visits) = (&table, &pollset, &visits);
            scope.spawn(move || {
                for _ in 0..SOCKETS {
                    let token = pollset[0].claim(poller);
                    find(table, handle).expect("nobody closes it").enqueue(pollset, |_| {});
                    visits.fetch_add(poll(table, pollset, 0, token).unwrap_or(0), SeqCst);
                    let _ = pollset[0].sleep(token, false, || true);
                }
            });
        }
    });
    let token = pollset[0].claim(0);
    visits.fetch_add(poll(&table, &pollset, 0, token).expect("nobody else claims"), SeqCst);
    assert_eq!(find(&table, handle).expect("nobody closes it").visits, visits.load(SeqCst));
}

/// Members stay, move, leave and join during broadcasts.
#[test]
fn members_move_while_messages_are_on_their_way() {
    const MESSAGES: u32 = 20_000;
    const MEMBERS: usize = 9;
    let group = Group::new(MEMBERS);
    let joined: Vec<u32> = (0..MEMBERS).map(|member| group.join(member)).collect();
    assert!(joined.iter().all(|&before| before == 0));
    let done = AtomicUsize::new(0);
    thread::scope(|scope| {
        let (group, done) = (&group, &done);
        let go_on = move || done.load(SeqCst) == 0;
        scope.spawn(move || {
            (0..MESSAGES).for_each(|_| group.broadcast());
            done.store(1, SeqCst);
        });
        for pollset in [0, 1, 0] {
            scope.spawn(move || {
                while go_on() {
                    group.serve(pollset);
                }
            });
        }
        scope.spawn(move || {
            while go_on() {
                (3..6).for_each(|member| group.move_over(member));
            }
        });
        scope.spawn(move || {
            while go_on() {
                for member in 6..MEMBERS {
                    group.leave(member);
                    group.join(member);
                }
            }
        });
    });
    [0, 1].into_iter().for_each(|pollset| group.serve(pollset));
    for member in 0..MEMBERS {
        let got = &group.member(member).got;
        match member {
            0..6 => assert!((1..=MESSAGES).eq(got.iter().copied()), "member {member} got {} messages", got.len()),
            _ => assert!(got.is_sorted_by(|one, next| one < next), "member {member}"),
        }
    }
}
