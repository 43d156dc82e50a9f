//! A member from before a message until its delivery gets the message once, in order; other
//! sockets do not get it. Slices respect their limit, and each message is finished once. A
//! socket's memberships are those that were added.
#![no_main]

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;

#[path = "../../src/value/division.rs"]
mod division;
#[path = "../../src/value/handle.rs"]
mod handle;
#[path = "../../src/value/membership.rs"]
mod membership;

use division::Division;
use handle::Handle;
use membership::{Membership, Memberships};

#[derive(Arbitrary, Debug)]
enum Step {
    Join(u8),
    Leave(u8),
    Push,
    /// A slice of at most this many members.
    Next(u8),
    /// As after the last member has left.
    LeaveAll,
    /// The socket enters or leaves a group; `current`: the other groups still exist.
    Enter {
        group: u8,
        last: u64,
        once: bool,
        current: bool,
    },
    Exit(u8),
    /// The socket has had the message of its single-message memberships.
    Served,
}

/// The expected state of a message.
struct Expected {
    number: usize,
    /// Members since before the message that have not had it.
    missing: BTreeSet<u8>,
}

fn handle(slot: u8) -> Handle {
    Handle::new(slot.into(), 0)
}

fuzz_target!(|steps: Vec<Step>| {
    let mut division = Division::new();
    let (mut members, mut messages, mut pushed) = (BTreeSet::new(), VecDeque::<Expected>::new(), 0);
    let mut memberships = Memberships::default();
    let mut groups = BTreeMap::new();
    let (mut slice, mut finished) = (Vec::new(), Vec::new());
    for step in steps {
        match step {
            Step::Join(slot) => assert_eq!(division.join(handle(slot)), members.insert(slot)),
            Step::Leave(slot) => {
                assert_eq!(division.leave(handle(slot)), members.remove(&slot));
                for message in &mut messages {
                    message.missing.remove(&slot);
                }
            }
            Step::Push => {
                division.push(pushed);
                messages.push_back(Expected { number: pushed, missing: members.clone() });
                pushed += 1;
            }
            Step::Next(limit) => {
                let limit = 1 + usize::from(limit) % 8;
                let next = division.next(&mut slice, |_| limit, &mut finished);
                for through in finished.drain(..) {
                    let expected = messages.pop_front().expect("no message is through twice");
                    assert_eq!(expected.number, through);
                    assert!(expected.missing.is_empty(), "a member was passed over");
                }
                match next {
                    None => assert!(slice.is_empty() && messages.is_empty()),
                    Some(number) => {
                        let first = messages.front_mut().expect("a message is on its way");
                        assert_eq!(first.number, number);
                        assert!(!slice.is_empty() && slice.len() <= limit);
                        for member in &slice {
                            let slot = member.slot() as u8;
                            assert!(members.contains(&slot));
                            // Later members are in the slices, too, and ignore it.
                            first.missing.remove(&slot);
                        }
                        let distinct: BTreeSet<u32> = slice.iter().map(|member| member.slot()).collect();
                        assert_eq!(distinct.len(), slice.len());
                    }
                }
            }
            Step::LeaveAll => {
                for slot in std::mem::take(&mut members) {
                    assert!(division.leave(handle(slot)));
                }
                let through: Vec<usize> = division.clear().collect();
                assert!(through.into_iter().eq(messages.drain(..).map(|message| message.number)));
            }
            Step::Enter { group, last, once, current } if !groups.contains_key(&group) => {
                let membership = Membership { group: handle(group), last, once };
                let mut gone = Vec::new();
                memberships.add(membership, |other| {
                    if !current {
                        gone.push(other.slot() as u8);
                    }
                    current
                });
                for other in gone {
                    assert!(groups.remove(&other).is_some());
                }
                groups.insert(group, (last, once));
            }
            Step::Enter { group, last, .. } => {
                let membership = memberships.of(handle(group)).expect("it is a member");
                membership.last = last;
                groups.entry(group).and_modify(|known| known.0 = last);
            }
            Step::Exit(group) => assert_eq!(memberships.remove(handle(group)), groups.remove(&group).is_some()),
            Step::Served => {
                while let Some(group) = memberships.remove_once() {
                    assert!(groups.remove(&(group.slot() as u8)).is_some_and(|(_, once)| once));
                }
                assert!(groups.values().all(|&(_, once)| !once));
            }
        }
        assert_eq!(division.len(), members.len());
        assert!(members.iter().all(|&slot| division.has(handle(slot))));
        assert!(division.pending().copied().eq(messages.iter().map(|message| message.number)));
        assert_eq!(memberships.is_empty(), groups.is_empty());
        let known: BTreeSet<u8> = memberships.groups().map(|group| group.slot() as u8).collect();
        assert!(known.iter().eq(groups.keys()));
        for (&group, &(last, _)) in &groups {
            assert_eq!(memberships.of(handle(group)).map(|membership| membership.last), Some(last));
        }
    }
});
