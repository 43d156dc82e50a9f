//! One direction of a relay. It reads no more than the other connection can take.

use std::io::IoSlice;
use std::os::fd::AsFd;

use rustix::io::{Errno, Result, retry_on_intr as retry};
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown};

use super::connection::{Connection, Turn, Visit, written};
use super::pipe::{Splice, Way};
use crate::kernel::clock::Nanos;
use crate::kernel::scratch::{BUFFER, SCRATCH};
use crate::value::handle::Side;
use crate::value::input_buffer::InputBuffer;
use crate::value::send_queue::SendQueue;
use crate::verb::output::SLICES;

/// Maximum bytes of a direction per visit.
const TURN: usize = 256 * 1024;

/// Maximum reads of a direction per visit; with a small buffer they are short.
const READS: usize = 64;

/// The bytes of one direction. `B` holds bytes that were queued before the relay began.
pub struct Flow<B> {
    source: Side,
    /// Maximum bytes per read, and of waiting bytes.
    buffer: usize,
    /// Bytes that were queued before the relay began; they go first.
    queued: Option<Box<SendQueue<B>>>,
    /// Bytes that were read and not sent.
    unsent: InputBuffer,
    way: Way,
    /// The source has sent all its data.
    ended: bool,
    /// The other side has been shut down.
    finished: bool,
}

enum Flushed {
    All,
    /// The kernel takes no more.
    Full,
    Over,
}

impl<B: AsRef<[u8]>> Flow<B> {
    /// A direction from `source`, with up to `buffer` bytes waiting, or a pipe of `pipe` bytes.
    pub fn new(source: Side, buffer: usize, splice: Splice, pipe: usize) -> Flow<B> {
        let way = Way::new(splice, pipe);
        Flow { source, buffer, queued: None, unsent: InputBuffer::default(), way, ended: false, finished: false }
    }

    /// Makes these bytes go first.
    pub fn begin_with(&mut self, queued: SendQueue<B>, read: InputBuffer) {
        self.queued = Some(queued).filter(|queued| !queued.is_empty()).map(Box::new);
        self.unsent = read;
    }

    /// Whether bytes wait for the kernel to take them.
    pub fn is_waiting(&self) -> bool {
        self.queued.is_some() || self.unsent.len() > 0 || self.way.pipe.as_ref().is_some_and(|pipe| pipe.held() > 0)
    }

    /// Whether further input must wait until the other side takes something.
    pub fn is_blocked(&self, to: &Connection) -> bool {
        self.is_waiting() && !to.writable && !self.has_room()
    }

    /// Whether the direction has a pipe.
    pub fn is_spliced(&self) -> bool {
        self.way.pipe.is_some()
    }

    /// Whether its source is not read, so that an error of the source would go unnoticed.
    pub fn is_deaf(&self) -> bool {
        self.ended || self.is_waiting()
    }

    /// Whether everything has been forwarded, including the end.
    pub fn is_finished(&self) -> bool {
        self.finished
    }

    /// Forwards available data.
    pub fn carry(&mut self, from: &mut Connection, to: &mut Connection, visit: &mut Visit) -> Result<Turn> {
        let mut left = TURN;
        loop {
            if self.is_waiting() {
                match self.flush(to, visit)? {
                    Flushed::All => {}
                    // A large buffer takes further reads.
                    Flushed::Full if self.has_room() => {}
                    Flushed::Full => return Ok(Turn::Done),
                    Flushed::Over => return Ok(Turn::Over),
                }
            }
            if self.ended {
                if !self.finished && !self.is_waiting() {
                    self.finish(to)?;
                }
                return Ok(Turn::Done);
            }
            if !from.readable.is_ready() {
                return Ok(Turn::Done);
            }
            if left == 0 || visit.work.is_over() {
                return Ok(Turn::Over);
            }
            let n = self.read(from, to, visit)?;
            visit.work.stepped();
            left = left.saturating_sub(n.max(TURN / READS));
        }
    }

    fn has_room(&self) -> bool {
        self.queued.is_none() && self.way.pipe.is_none() && self.unsent.len() + SCRATCH <= self.buffer
    }

    /// Shuts down the other side.
    fn finish(&mut self, to: &Connection) -> Result<()> {
        self.finished = true;
        self.way.pipe = None;
        match rustix::net::shutdown(&to.fd, Shutdown::Write) {
            // The connection is gone; its own event reports that.
            Ok(()) | Err(Errno::NOTCONN) => Ok(()),
            Err(errno) => Err(errno),
        }
    }

    /// Reads once, and writes what was read. Returns the number of bytes read.
    #[inline]
    fn read(&mut self, from: &mut Connection, to: &mut Connection, visit: &mut Visit) -> Result<usize> {
        if from.readable.has_urgent_data() && !self.is_waiting() {
            // Only recv(2) reads past the mark.
            self.way.refuse();
        }
        if !self.is_waiting()
            && let Some(pipe) = self.way.pipe()
        {
            return match pipe.fill(&from.fd) {
                Err(Errno::INVAL) => {
                    self.way.refuse();
                    Ok(0)
                }
                filled => self.has_read(filled, from, visit),
            };
        }
        let limit = self.buffer.min(SCRATCH);
        BUFFER.with_borrow_mut(|buffer| {
            let read =
                retry(|| rustix::net::recv(from.fd.as_fd(), &mut buffer[..limit], RecvFlags::empty()).map(|(n, _)| n));
            let n = self.has_read(read, from, visit)?;
            if n == 0 {
                return Ok(0);
            }
            from.readable.has_read(n, limit);
            let taken = if to.writable && !self.is_waiting() {
                let sent = retry(|| rustix::net::send(to.fd.as_fd(), &buffer[..n], SendFlags::NOSIGNAL));
                written(to, sent, n, visit)?
            } else {
                0
            };
            if taken < n {
                self.unsent.push(&buffer[taken..n]);
            }
            Ok(n)
        })
    }

    /// Handles the result of a read. Returns the number of bytes.
    #[inline]
    fn has_read(&mut self, read: Result<usize>, from: &mut Connection, visit: &mut Visit) -> Result<usize> {
        match read {
            Ok(0) => {
                self.ended = true;
                Ok(0)
            }
            Ok(n) => {
                visit.has_read(self.source, n);
                self.way.read(n);
                Ok(n)
            }
            Err(Errno::AGAIN) => {
                from.readable.end();
                Ok(0)
            }
            Err(errno) => Err(from.fail(errno)),
        }
    }

    /// Writes waiting bytes, as many as the kernel takes.
    fn flush(&mut self, to: &mut Connection, visit: &mut Visit) -> Result<Flushed> {
        while self.is_waiting() {
            if !to.writable {
                return Ok(Flushed::Full);
            }
            if visit.work.is_over() {
                return Ok(Flushed::Over);
            }
            if self.write_waiting(to, visit)? > 0 {
                visit.statistics.wrote(Nanos::now());
            }
        }
        self.way.settle();
        Ok(Flushed::All)
    }

    /// Writes waiting bytes once.
    fn write_waiting(&mut self, to: &mut Connection, visit: &mut Visit) -> Result<usize> {
        if let Some(queued) = &mut self.queued {
            let mut slices = [IoSlice::new(&[]); SLICES];
            let (count, total) = queued.front(&mut slices, TURN);
            let sent = retry(|| {
                let mut none = SendAncillaryBuffer::default();
                rustix::net::sendmsg(to.fd.as_fd(), &slices[..count], &mut none, SendFlags::NOSIGNAL)
            });
            let n = written(to, sent, total, visit)?;
            queued.advance(n);
            if queued.is_empty() {
                self.queued = None;
            }
            return Ok(n);
        }
        if self.unsent.len() > 0 {
            let bytes = self.unsent.as_slice();
            let bytes = &bytes[..bytes.len().min(TURN)];
            let sent = retry(|| rustix::net::send(to.fd.as_fd(), bytes, SendFlags::NOSIGNAL));
            let n = written(to, sent, bytes.len(), visit)?;
            self.unsent.advance(n);
            return Ok(n);
        }
        let Some(pipe) = &mut self.way.pipe else { return Ok(0) };
        // A pipe may give less than the kernel would take; only EAGAIN means that it is full.
        match pipe.drain(&to.fd) {
            Ok(0) => Err(Errno::PIPE),
            Ok(n) => {
                let all = n;
                written(to, Ok(n), all, visit)
            }
            Err(errno) => written(to, Err(errno), 1, visit),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    use super::super::statistics::Statistics;
    use super::*;
    use crate::value::counters::Tally;
    use crate::value::readable::Readable;
    use crate::value::work::Work;

    /// A direction between two socket pairs, served as if all events came at once.
    struct Bench {
        sender: UnixStream,
        from: Connection,
        to: Connection,
        receiver: UnixStream,
        flow: Flow<Vec<u8>>,
        tally: Tally,
        statistics: Statistics,
    }

    fn connection(socket: UnixStream) -> Connection {
        socket.set_nonblocking(true).expect("a socket");
        Connection::new(socket.into(), Readable::new(true))
    }

    impl Bench {
        fn new(buffer: usize, splice: Splice) -> Bench {
            let (sender, from) = UnixStream::pair().expect("sockets");
            let (to, receiver) = UnixStream::pair().expect("sockets");
            sender.set_nonblocking(true).expect("a socket");
            receiver.set_nonblocking(true).expect("a socket");
            Bench {
                sender,
                from: connection(from),
                to: connection(to),
                receiver,
                flow: Flow::new(Side::Left, buffer, splice, 65536),
                tally: Tally::default(),
                statistics: Statistics::new(Nanos::now()),
            }
        }

        fn carry(&mut self) -> Result<Turn> {
            self.from.readable.try_again();
            self.to.writable = true;
            let mut work = Work::of_caller();
            let (tally, statistics) = (&mut self.tally, &mut self.statistics);
            let mut visit = Visit { work: &mut work, tally, statistics, times: [None; 2] };
            self.flow.carry(&mut self.from, &mut self.to, &mut visit)
        }
    }

    /// A deterministic generator, so that a failure can be repeated.
    fn random() -> impl FnMut(usize) -> usize {
        let mut seed = 1u64;
        move |below| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 33) as usize % below
        }
    }

    /// Data sent in random pieces arrives unchanged in random pieces, followed by the end.
    fn is_the_identity(buffer: usize, splice: Splice) {
        let mut random = random();
        let sent: Vec<u8> = (0..1_000_000).map(|_| random(256) as u8).collect();
        let mut bench = Bench::new(buffer, splice);
        let mut queued = SendQueue::new();
        queued.push(&[1; 5000], || Some(vec![1; 5000]));
        let mut read = InputBuffer::default();
        read.push(b"then this");
        bench.flow.begin_with(queued, read);
        let (mut received, mut offset, mut ended) = (Vec::new(), 0, false);
        let mut space = vec![0; 300_000];
        while !bench.flow.is_finished() {
            match random(3) {
                0 if offset < sent.len() => {
                    let piece = (1 + [random(10), random(100_000)][random(2)]).min(sent.len() - offset);
                    offset += bench.sender.write(&sent[offset..offset + piece]).unwrap_or(0);
                }
                0 if !ended => {
                    bench.sender.shutdown(std::net::Shutdown::Write).expect("connected");
                    ended = true;
                }
                1 => {
                    bench.carry().expect("nothing fails");
                    assert!(bench.flow.unsent.len() <= buffer.max(9));
                }
                _ => {
                    let size = 1 + [random(10), random(200_000)][random(2)];
                    let n = bench.receiver.read(&mut space[..size]).unwrap_or(0);
                    received.extend_from_slice(&space[..n]);
                }
            }
        }
        bench.receiver.set_nonblocking(false).expect("a socket");
        bench.receiver.read_to_end(&mut received).expect("the end");
        assert!(received[..5000].iter().all(|&byte| byte == 1));
        assert_eq!(&received[5000..5009], b"then this");
        assert!(received[5009..] == sent, "other bytes");
    }

    #[test]
    fn any_chunks_and_any_back_pressure_copied() {
        is_the_identity(65536, Splice::Never);
    }

    #[test]
    fn any_chunks_and_any_back_pressure_with_a_small_buffer() {
        is_the_identity(700, Splice::Never);
    }

    #[test]
    fn any_chunks_and_any_back_pressure_with_a_large_buffer() {
        is_the_identity(300_000, Splice::Never);
    }

    #[test]
    fn any_chunks_and_any_back_pressure_spliced() {
        is_the_identity(65536, Splice::Always);
    }

    #[test]
    fn any_chunks_and_any_back_pressure_either_way() {
        is_the_identity(65536, Splice::Auto);
    }

    #[test]
    fn a_receiver_that_takes_nothing_stops_the_reads() {
        for splice in [Splice::Never, Splice::Always] {
            let mut bench = Bench::new(65536, splice);
            let mut sent = 0;
            loop {
                match bench.sender.write(&[7; 4096]) {
                    Ok(n) => sent += n,
                    Err(_) if bench.flow.is_waiting() => break,
                    Err(_) => while bench.carry().expect("nothing fails") == Turn::Over {},
                }
            }
            assert!(bench.flow.unsent.len() <= 65536);
            assert!(sent < 4 * 1024 * 1024);
        }
    }

    #[test]
    fn a_receiver_that_is_gone_is_an_error() {
        let mut bench = Bench::new(65536, Splice::Never);
        bench.sender.write_all(b"x").expect("room");
        let (other, _) = UnixStream::pair().expect("sockets");
        drop(std::mem::replace(&mut bench.receiver, other));
        assert_eq!(bench.carry(), Err(Errno::PIPE));
    }
}
