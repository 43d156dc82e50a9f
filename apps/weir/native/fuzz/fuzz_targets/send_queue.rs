//! Bytes leave the queue as they came, in whatever pieces, and a piece that is held is held once.
#![no_main]

use std::collections::VecDeque;
use std::io::IoSlice;
use std::rc::Rc;

use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;

#[path = "../../src/send_queue.rs"]
mod send_queue;

use send_queue::SendQueue;

#[derive(Arbitrary, Debug)]
enum Step<'a> {
    Push(&'a [u8]),
    /// Around the size from which pieces are held, and beyond that of a chunk.
    PushMany {
        byte: u8,
        count: u16,
    },
    PushCopy(&'a [u8]),
    /// As a write does: so many slices, at most so many bytes, of which the kernel takes a part.
    Write {
        slices: u8,
        limit: u32,
        taken: u32,
    },
}

/// A reference to bytes that somebody else owns too.
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

fuzz_target!(|steps: Vec<Step>| {
    let mut queue = SendQueue::new();
    let (mut model, mut held) = (VecDeque::new(), Vec::new());
    for step in steps {
        match step {
            Step::Push(bytes) => {
                push(&mut queue, &mut held, bytes);
                model.extend(bytes);
            }
            Step::PushMany { byte, count } => {
                let bytes = vec![byte; count.into()];
                push(&mut queue, &mut held, &bytes);
                model.extend(bytes);
            }
            Step::PushCopy(bytes) => {
                queue.push_copy(bytes);
                model.extend(bytes);
            }
            Step::Write { slices, limit, taken } => {
                let (slices, limit) = (1 + usize::from(slices) % 64, 1 + limit as usize % (256 * 1024));
                let mut space = [IoSlice::new(&[]); 64];
                let (count, total) = queue.front(&mut space[..slices], limit);
                let front = || space[..count].iter().flat_map(|slice| slice.iter());
                assert!(count <= slices && total <= limit && total <= model.len());
                assert!(total > 0 || model.is_empty());
                assert_eq!(front().count(), total);
                assert!(model.iter().take(total).eq(front()));
                let taken = taken as usize % (total + 1);
                queue.advance(taken);
                model.drain(..taken);
            }
        }
        assert_eq!((queue.len(), queue.is_empty()), (model.len(), model.is_empty()));
        if queue.is_empty() {
            assert!(held.iter().all(|bytes| Rc::strong_count(bytes) == 1), "a reference outlives its bytes");
        }
    }
    drop(queue);
    assert!(held.iter().all(|bytes| Rc::strong_count(bytes) == 1), "a reference outlives the queue");
});
