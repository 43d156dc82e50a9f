//! Single writes: of a caller's data, of the queue, of a message.

use std::io::IoSlice;
use std::os::fd::{AsFd, OwnedFd};

use rustix::io::{Errno, retry_on_intr as retry};
use rustix::net::{SendAncillaryBuffer, SendFlags};
use rustler::Binary;

use crate::pollset;
use crate::socket::{Output, Socket};
use crate::term::held::HeldBinary;
use crate::value::counters::Tally;
use crate::value::work::Work;

/// Maximum slices per write and parts per send; the maximum bytes per write bound the time of the
/// kernel's copy.
pub const SLICES: usize = 64;

const WRITE: usize = 256 * 1024;

/// Bytes to send, and how to keep those that the kernel does not take.
pub trait Part {
    fn bytes(&self) -> &[u8];

    /// A reference to the bytes from `skip` on; `None` if they must be copied.
    fn hold(&self, skip: usize) -> Option<HeldBinary>;
}

impl Part for Binary<'_> {
    fn bytes(&self) -> &[u8] {
        self.as_slice()
    }

    fn hold(&self, skip: usize) -> Option<HeldBinary> {
        let rest = self.make_subbinary(skip, self.len() - skip).ok()?;
        Some(HeldBinary::new(&rest))
    }
}

/// Bytes that live only during the call.
pub struct Flat<'a>(pub &'a [u8]);

impl Part for Flat<'_> {
    fn bytes(&self) -> &[u8] {
        self.0
    }

    fn hold(&self, _skip: usize) -> Option<HeldBinary> {
        None
    }
}

/// Writes `header` and `parts` once, without the first `skip` bytes.
pub fn write_parts(
    socket: &mut Socket,
    header: &[u8],
    parts: &[impl Part],
    mut skip: usize,
    work: &mut Work,
) -> rustix::io::Result<usize> {
    let Some(fd) = &socket.fd else {
        return Err(Errno::NOTCONN);
    };
    if let [part] = parts
        && header.is_empty()
    {
        let bytes = &part.bytes()[skip..];
        let bytes = &bytes[..bytes.len().min(WRITE)];
        let result = retry(|| rustix::net::send(fd.as_fd(), bytes, SendFlags::NOSIGNAL));
        return written(socket, result, bytes.len(), work);
    }
    let mut slices = [IoSlice::new(&[]); SLICES];
    let (mut count, mut total) = (0, 0);
    for bytes in std::iter::once(header).chain(parts.iter().map(|part| part.bytes())) {
        let skipped = skip.min(bytes.len());
        skip -= skipped;
        let bytes = &bytes[skipped..];
        let bytes = &bytes[..bytes.len().min(WRITE - total)];
        if bytes.is_empty() {
            continue;
        }
        slices[count] = IoSlice::new(bytes);
        count += 1;
        total += bytes.len();
        if count == SLICES || total == WRITE {
            break;
        }
    }
    let result = write_slices(fd, &slices[..count], SendFlags::empty());
    written(socket, result, total, work)
}

/// Writes the front of the queue once.
pub fn write_queue(socket: &mut Socket, work: &mut Work) -> rustix::io::Result<()> {
    let (Some(fd), Some(output)) = (&socket.fd, &socket.output) else {
        return Err(Errno::NOTCONN);
    };
    let mut slices = [IoSlice::new(&[]); SLICES];
    let (count, total) = output.queue.front(&mut slices, WRITE.min(allowed(output)));
    // The head goes into the same packets as the file that follows; sent alone, it would wake the
    // peer twice.
    let more = if output.queue.leads_elsewhere() { SendFlags::MORE } else { SendFlags::empty() };
    let result = write_slices(fd, &slices[..count], more);
    let n = written(socket, result, total, work)?;
    if let Some(output) = &mut socket.output {
        output.queue.advance(n);
        if let Some(transfer) = &mut output.transfer {
            transfer.ahead -= n;
        }
    }
    Ok(())
}

fn write_slices(fd: &OwnedFd, slices: &[IoSlice], flags: SendFlags) -> rustix::io::Result<usize> {
    retry(|| {
        let mut none = SendAncillaryBuffer::default();
        rustix::net::sendmsg(fd.as_fd(), slices, &mut none, SendFlags::NOSIGNAL | flags)
    })
}

/// Writes bytes that are not queued, once. Returns how many the kernel has taken.
pub fn write_once(socket: &mut Socket, bytes: &[u8], work: &mut Work, tally: &mut Tally) -> rustix::io::Result<usize> {
    let Some(fd) = &socket.fd else {
        return Err(Errno::NOTCONN);
    };
    let bytes = &bytes[..bytes.len().min(WRITE)];
    let n = match retry(|| rustix::net::send(fd.as_fd(), bytes, SendFlags::NOSIGNAL)) {
        Err(Errno::AGAIN) => 0,
        result => result?,
    };
    tally.wrote(n, bytes.len());
    work.moved(n);
    if n < bytes.len() {
        socket.writable = false;
    }
    Ok(n)
}

/// Handles the result of a write. After a short one the kernel's buffer is full, and an edge
/// reports when it is not.
fn written(
    socket: &mut Socket,
    result: rustix::io::Result<usize>,
    wanted: usize,
    work: &mut Work,
) -> rustix::io::Result<usize> {
    let n = match result {
        Ok(n) => n,
        Err(Errno::AGAIN) => 0,
        Err(errno) => return Err(errno),
    };
    match &mut work.tally {
        Some(tally) => tally.wrote(n, wanted),
        None => pollset::counters_near(socket.pollset).wrote(n, wanted),
    }
    work.moved(n);
    if n > 0 {
        socket.has_replied();
    }
    if n < wanted {
        socket.writable = false;
    }
    Ok(n)
}

/// Queued bytes that may be written now, which excludes those behind a file.
pub fn allowed(output: &Output) -> usize {
    output.transfer.as_ref().map_or(output.queue.len(), |transfer| transfer.ahead)
}
