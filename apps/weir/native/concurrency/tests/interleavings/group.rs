//! Members that join, leave or move during broadcasts get each message once, in order.

use loom::model;
use loom::sync::Arc;
use loom::thread;

use weir_concurrency::group::Group;

/// A group whose members are the first `members` sockets.
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
        // It has a prefix of the messages, and gets none after it has left.
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
