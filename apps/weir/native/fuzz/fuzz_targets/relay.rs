//! A direction of a relay forwards all bytes unchanged and in order, followed by the end, in any
//! pieces, spliced or copied. It keeps no more bytes than its buffer.
#![no_main]

use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;

use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;

#[path = "../../src/relay/connection.rs"]
mod connection;
#[path = "../../src/value/counters.rs"]
mod counters;
#[path = "../../src/relay/flow.rs"]
mod flow;
#[path = "../../src/value/handle.rs"]
mod handle;
#[path = "../../src/value/input_buffer.rs"]
mod input_buffer;
#[path = "../../src/relay/pipe.rs"]
mod pipe;
#[path = "../../src/value/readable.rs"]
mod readable;
#[path = "../../src/kernel/scratch.rs"]
mod scratch;
#[path = "../../src/value/send_queue.rs"]
mod send_queue;
#[path = "../../src/value/work.rs"]
mod work;

/// Replaces the engine's statistics, which need the VM. Reply times are not measured.
mod statistics {
    use crate::clock::Nanos;
    use crate::handle::Side;

    pub struct Statistics;

    impl Statistics {
        pub fn read(&mut self, _source: Side, _n: usize, _now: Nanos) -> Option<u64> {
            None
        }

        pub fn wrote(&mut self, _now: Nanos) {}
    }
}

mod clock {
    pub struct Nanos;

    impl Nanos {
        pub fn now() -> Nanos {
            Nanos
        }
    }
}

mod latency {
    pub struct Times;

    impl Times {
        pub fn count(&self, _reply: u64) {}
    }
}

mod output {
    pub const SLICES: usize = 64;
}

// The modules under their names in the engine.
mod kernel {
    pub(crate) use crate::{clock, scratch};
}
mod value {
    pub(crate) use crate::{counters, handle, input_buffer, latency, readable, send_queue, work};
}
mod verb {
    pub(crate) use crate::output;
}

use connection::{Connection, Visit};
use counters::Tally;
use flow::Flow;
use handle::Side;
use input_buffer::InputBuffer;
use pipe::Splice;
use readable::Readable;
use send_queue::SendQueue;
use statistics::Statistics;
use work::Work;

#[derive(Arbitrary, Debug)]
struct Input<'a> {
    buffer: u32,
    splice: u8,
    /// Sent before everything else.
    queued: &'a [u8],
    read: &'a [u8],
    steps: Vec<Step>,
}

#[derive(Arbitrary, Debug)]
enum Step {
    Send(u32),
    End,
    Carry,
    Receive(u32),
}

/// Maximum bytes sent per step.
const MOST: usize = 256 * 1024;

struct Bench {
    sender: UnixStream,
    from: Connection,
    to: Connection,
    receiver: UnixStream,
    flow: Flow<Vec<u8>>,
    tally: Tally,
    expected: Vec<u8>,
    received: usize,
    space: Vec<u8>,
}

fn pair() -> (UnixStream, UnixStream) {
    let (one, other) = UnixStream::pair().expect("sockets");
    for socket in [&one, &other] {
        socket.set_nonblocking(true).expect("a socket");
    }
    (one, other)
}

fn connection(socket: UnixStream) -> Connection {
    Connection::new(socket.into(), Readable::new(true))
}

impl Bench {
    fn send(&mut self, size: usize) {
        let first = self.expected.len();
        // The bytes differ from place to place.
        let bytes: Vec<u8> = (first..first + size).map(|at| (at ^ at >> 8 ^ at >> 16) as u8).collect();
        match self.sender.write(&bytes) {
            Ok(n) => self.expected.extend_from_slice(&bytes[..n]),
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
    }

    /// Serves the direction as if all events came at once.
    fn carry(&mut self) {
        self.from.readable.try_again();
        self.to.writable = true;
        let (mut work, mut statistics) = (Work::of_caller(), Statistics);
        let tally = &mut self.tally;
        let mut visit = Visit { work: &mut work, tally, statistics: &mut statistics, times: [None; 2] };
        self.flow.carry(&mut self.from, &mut self.to, &mut visit).expect("both connections are there");
    }

    /// Returns false at the end.
    fn receive(&mut self, size: usize) -> bool {
        match self.receiver.read(&mut self.space[..size]) {
            Ok(0) => false,
            Ok(n) => {
                let wanted = self.expected.get(self.received..self.received + n).expect("no byte is made up");
                assert!(self.space[..n] == *wanted, "other bytes behind {}", self.received);
                self.received += n;
                true
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock);
                true
            }
        }
    }
}

fuzz_target!(|input: Input| {
    let ((sender, from), (to, receiver)) = (pair(), pair());
    let splice = [Splice::Auto, Splice::Always, Splice::Never][usize::from(input.splice) % 3];
    let buffer = 1 + input.buffer as usize % (1024 * 1024);
    let mut flow = Flow::new(Side::Left, buffer, splice, buffer);
    let mut queued = SendQueue::new();
    queued.push(input.queued, || Some(input.queued.to_vec()));
    let mut read = InputBuffer::default();
    read.push(input.read);
    flow.begin_with(queued, read);
    let mut bench = Bench {
        sender,
        from: connection(from),
        to: connection(to),
        receiver,
        flow,
        tally: Tally::default(),
        expected: [input.queued, input.read].concat(),
        received: 0,
        space: vec![0; MOST],
    };
    let mut ended = false;
    for step in input.steps {
        match step {
            Step::Send(size) if !ended => bench.send(size as usize % MOST),
            Step::Send(_) => {}
            Step::End => {
                let _ = bench.sender.shutdown(Shutdown::Write);
                ended = true;
            }
            Step::Carry => bench.carry(),
            Step::Receive(size) => {
                let all = bench.receive(1 + size as usize % MOST);
                assert!(all || bench.flow.is_finished());
            }
        }
        assert!(ended || !bench.flow.is_finished());
    }
    let _ = bench.sender.shutdown(Shutdown::Write);
    while bench.receive(MOST) {
        bench.carry();
    }
    assert!(bench.flow.is_finished() && !bench.flow.is_waiting());
    assert_eq!(bench.received, bench.expected.len());
});
