//! The buffer contains the bytes that were added and not taken, in order, after any operations.
#![no_main]

use std::collections::VecDeque;

use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;

#[path = "../../src/value/input_buffer.rs"]
mod input_buffer;

use input_buffer::InputBuffer;

#[derive(Arbitrary, Debug)]
enum Step<'a> {
    Push(&'a [u8]),
    PushMany {
        byte: u8,
        count: u16,
    },
    Unread(&'a [u8]),
    Advance(u32),
    /// Appended by a reader, with any announced size.
    Fill {
        announced: u32,
        bytes: &'a [u8],
    },
    Split(u32),
}

fuzz_target!(|steps: Vec<Step>| {
    let mut buffer = InputBuffer::default();
    let mut model = VecDeque::new();
    for step in steps {
        match step {
            Step::Push(bytes) => {
                buffer.push(bytes);
                model.extend(bytes);
            }
            Step::PushMany { byte, count } => {
                let bytes = vec![byte; count.into()];
                buffer.push(&bytes);
                model.extend(bytes);
            }
            Step::Unread(bytes) => {
                buffer.unread(bytes);
                bytes.iter().rev().for_each(|&byte| model.push_front(byte));
            }
            Step::Advance(n) => {
                let n = n as usize % (model.len() + 1);
                buffer.advance(n);
                model.drain(..n);
            }
            Step::Fill { announced, bytes } => {
                buffer.fill(announced as usize, |end| end.extend_from_slice(bytes));
                model.extend(bytes);
            }
            Step::Split(n) => {
                let n = n as usize % (model.len() + 1);
                let (bytes, skip, rest) = buffer.split(n);
                assert!(model.drain(..n).eq(bytes[skip..].iter().copied()));
                buffer = rest;
            }
        }
        assert_eq!(buffer.len(), model.len());
        assert!(model.iter().eq(buffer.as_slice()));
    }
});
