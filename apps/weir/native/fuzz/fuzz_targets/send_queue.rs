//! Bytes leave the queue as they came, in any pieces, and each held piece is referenced once.
//! Messages of groups leave it whole, or not at all if they were dropped before their first byte
//! was sent.
#![no_main]

use std::collections::{HashSet, VecDeque};
use std::io::IoSlice;
use std::rc::Rc;

use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;

#[path = "../../src/value/send_queue.rs"]
mod send_queue;

use send_queue::SendQueue;

#[derive(Arbitrary, Debug)]
enum Step<'a> {
    Push(&'a [u8]),
    /// Sizes around the limit for held pieces, and above that of a chunk.
    PushMany {
        byte: u8,
        count: u16,
    },
    PushCopy(&'a [u8]),
    /// A message of one of two groups, or the rest of one that has begun.
    PushMessage {
        group: bool,
        begun: bool,
        bytes: &'a [u8],
    },
    DropOldest {
        group: bool,
    },
    /// A write of up to `slices` slices and `limit` bytes, of which the kernel takes a part.
    Write {
        slices: u8,
        limit: u32,
        taken: u32,
    },
}

/// A shared reference to bytes.
struct Held(Rc<[u8]>);

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

fn push(queue: &mut SendQueue<Held>, held: &mut Vec<Rc<[u8]>>, bytes: &[u8]) {
    queue.push(bytes, || {
        let shared: Rc<[u8]> = bytes.into();
        held.push(shared.clone());
        Some(Held(shared))
    });
}

/// The origin of a queued byte: none, or the number of a message and the group that may drop it.
type Source = Option<(usize, Option<bool>)>;

fn own(bytes: &[u8]) -> impl Iterator<Item = (u8, Source)> {
    bytes.iter().map(|&byte| (byte, None))
}

fuzz_target!(|steps: Vec<Step>| {
    let mut queue = SendQueue::new();
    let (mut model, mut held) = (VecDeque::<(u8, Source)>::new(), Vec::new());
    let (mut messages, mut begun) = (0, HashSet::new());
    for step in steps {
        match step {
            Step::Push(bytes) => {
                push(&mut queue, &mut held, bytes);
                model.extend(own(bytes));
            }
            Step::PushMany { byte, count } => {
                let bytes = vec![byte; count.into()];
                push(&mut queue, &mut held, &bytes);
                model.extend(own(&bytes));
            }
            Step::PushCopy(bytes) => {
                queue.push_copy(bytes);
                model.extend(own(bytes));
            }
            // The engine sends an empty message at once.
            Step::PushMessage { bytes: [], .. } => {}
            Step::PushMessage { group, begun, bytes } => {
                let shared: Rc<[u8]> = bytes.into();
                held.push(shared.clone());
                match begun {
                    true => queue.push_held(Held(shared)),
                    false => queue.push_droppable(Held(shared), group.into()),
                }
                messages += 1;
                model.extend(bytes.iter().map(|&byte| (byte, Some((messages, (!begun).then_some(group))))));
            }
            Step::DropOldest { group } => {
                let oldest = model.iter().find_map(|(_, source)| match source {
                    Some((number, Some(of))) if *of == group && !begun.contains(number) => Some(*number),
                    _ => None,
                });
                if let Some(oldest) = oldest {
                    model.retain(|(_, source)| source.is_none_or(|(number, _)| number != oldest));
                }
                assert_eq!(queue.drop_oldest(group.into()), oldest.is_some());
            }
            Step::Write { slices, limit, taken } => {
                let (slices, limit) = (1 + usize::from(slices) % 64, 1 + limit as usize % (256 * 1024));
                let mut space = [IoSlice::new(&[]); 64];
                let (count, total) = queue.front(&mut space[..slices], limit);
                let front = || space[..count].iter().flat_map(|slice| slice.iter());
                assert!(count <= slices && total <= limit && total <= model.len());
                assert!(total > 0 || model.is_empty());
                assert_eq!(front().count(), total);
                assert!(model.iter().take(total).map(|(byte, _)| byte).eq(front()));
                let taken = taken as usize % (total + 1);
                queue.advance(taken);
                begun.extend(model.drain(..taken).filter_map(|(_, source)| source.map(|(number, _)| number)));
            }
        }
        for group in [false, true] {
            let of_group: Vec<usize> = model
                .iter()
                .filter_map(|(_, source)| match source {
                    Some((number, Some(of))) if *of == group && !begun.contains(number) => Some(*number),
                    _ => None,
                })
                .collect();
            let numbers: HashSet<usize> = of_group.iter().copied().collect();
            assert_eq!(queue.droppable(group.into()), (numbers.len(), of_group.len()));
        }
        assert_eq!((queue.len(), queue.is_empty()), (model.len(), model.is_empty()));
        if queue.is_empty() {
            assert!(held.iter().all(|bytes| Rc::strong_count(bytes) == 1), "a reference outlives its bytes");
        }
    }
    drop(queue);
    assert!(held.iter().all(|bytes| Rc::strong_count(bytes) == 1), "a reference outlives the queue");
});
