//! Regular files: opening them safely, and sending them to a socket without copying.
//!
//! Opening a file, and reading pages that are not in the page cache, may wait for a disk. Both
//! belong on dirty schedulers.

use std::io::IoSliceMut;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Stat};
use rustix::io::{Errno, ReadWriteFlags, retry_on_intr as retry};
use rustix::time::{ClockId, clock_gettime};

/// Distance between page-cache probes, in bytes. The kernel's read-ahead is at least as long.
/// Pages may be evicted after a probe anyway; at worst a scheduler waits for the disk once.
const STRIDE: u64 = 16 * 1024;

/// For this many milliseconds after a complete probe, a file counts as cached: its pages were just
/// used, so the kernel evicts others first. Probing it each time costs 6 % of sending it, or more.
const TRUST_MS: i64 = 1000;

/// Files up to this size are probed as a whole.
const SMALL: u64 = 1024 * 1024;

/// A regular file, open for reading.
pub struct File {
    fd: OwnedFd,
    pub size: u64,
    /// Time of the last modification, in nanoseconds since 1970.
    pub modified: i64,
    /// When it was last completely in memory, in milliseconds of the monotonic clock.
    seen: AtomicI64,
}

/// Why a file was not opened.
pub enum NotOpen {
    Directory,
    /// A pipe, a device or a socket; or a symbolic link where links are not followed.
    NotRegular,
    Failed(Errno),
}

impl From<Errno> for NotOpen {
    fn from(errno: Errno) -> NotOpen {
        NotOpen::Failed(errno)
    }
}

/// Progress of sending a part of a file.
pub struct PartSent {
    /// Bytes that the kernel took.
    pub bytes: u64,
    pub stop: Stop,
}

/// Why sending a part stopped.
pub enum Stop {
    Limit,
    EndOfFile,
    /// The kernel takes no more; an edge follows when it does.
    Full,
    Failed(Errno),
}

impl File {
    /// Opens a file and follows symbolic links.
    pub fn open(path: &Path) -> Result<File, NotOpen> {
        File::open_at(CWD, path, AtFlags::empty(), OFlags::empty())
    }

    /// Opens a file below a directory; `names` are the path components. Follows no symbolic links,
    /// not even one that replaces a directory during the call. ENOENT for `..` and for names with
    /// a slash.
    pub fn open_below(directory: &Path, names: &[&[u8]]) -> Result<File, NotOpen> {
        let Some((last, above)) = names.split_last() else { return Err(NotOpen::Directory) };
        let is_name = |name: &&[u8]| !matches!(**name, [] | [b'.'] | [b'.', b'.']) && !name.contains(&b'/');
        if !names.iter().all(is_name) {
            return Err(Errno::NOENT.into());
        }
        let way = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut below = retry(|| rustix::fs::open(directory, way, Mode::empty()))?;
        for name in above {
            below = retry(|| rustix::fs::openat(&below, *name, way | OFlags::NOFOLLOW, Mode::empty()))?;
        }
        File::open_at(below.as_fd(), *last, AtFlags::SYMLINK_NOFOLLOW, OFlags::NOFOLLOW)
    }

    /// Opening a device may have effects, and opening a pipe may block. So the type is checked
    /// before, and again after, in case the file was replaced.
    fn open_at(
        directory: BorrowedFd,
        path: impl rustix::path::Arg + Copy,
        at: AtFlags,
        how: OFlags,
    ) -> Result<File, NotOpen> {
        check(&rustix::fs::statat(directory, path, at)?)?;
        let flags = how | OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let fd = retry(|| rustix::fs::openat(directory, path, flags, Mode::empty()))?;
        let stat = rustix::fs::fstat(&fd)?;
        check(&stat)?;
        let modified = stat.st_mtime.saturating_mul(1_000_000_000).saturating_add(stat.st_mtime_nsec as i64);
        Ok(File { fd, size: stat.st_size as u64, modified, seen: AtomicI64::new(i64::MIN) })
    }

    /// How many of the `limit` bytes at `offset` are in memory; see [`in_memory`].
    pub fn in_memory(&self, offset: u64, limit: u64) -> u64 {
        if self.size <= SMALL {
            let now = now_ms();
            if now.saturating_sub(self.seen.load(Relaxed)) < TRUST_MS {
                return limit;
            }
            if in_memory(self.fd.as_fd(), 0, self.size) == self.size {
                self.seen.store(now, Relaxed);
                return limit;
            }
        }
        in_memory(self.fd.as_fd(), offset, limit)
    }

    /// Sends a part, as much as the socket takes; see [`send`].
    pub fn send(&self, socket: BorrowedFd, offset: u64, limit: u64) -> PartSent {
        send(self.fd.as_fd(), socket, offset, limit)
    }

    /// Fills `buffer` from `offset` on, up to the end of the file. Returns the number of bytes.
    pub fn read(&self, buffer: &mut [u8], offset: u64) -> rustix::io::Result<usize> {
        let mut filled = 0;
        while filled < buffer.len() {
            match retry(|| rustix::io::pread(&self.fd, &mut buffer[filled..], offset + filled as u64))? {
                0 => break,
                n => filled += n,
            }
        }
        Ok(filled)
    }
}

fn check(stat: &Stat) -> Result<(), NotOpen> {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Ok(()),
        FileType::Directory => Err(NotOpen::Directory),
        _ => Err(NotOpen::NotRegular),
    }
}

fn now_ms() -> i64 {
    let now = clock_gettime(ClockId::MonotonicCoarse);
    now.tv_sec * 1000 + now.tv_nsec as i64 / 1_000_000
}

/// Returns how many of the `limit` bytes at `offset` are in memory, up to the first that is not.
pub fn in_memory(file: BorrowedFd, offset: u64, limit: u64) -> u64 {
    let mut checked = 0;
    while checked < limit {
        let mut byte = [0];
        let mut slice = [IoSliceMut::new(&mut byte)];
        match rustix::io::preadv2(file, &mut slice, offset + checked, ReadWriteFlags::NOWAIT) {
            // End of file: no read would have to wait.
            Ok(0) => return limit,
            Ok(_) => checked += STRIDE - (offset + checked) % STRIDE,
            // Not in memory, or the file system cannot tell.
            Err(_) => break,
        }
    }
    checked.min(limit)
}

/// Sends up to `limit` bytes at `offset`, as much as the kernel takes; may wait for the disk.
pub fn send(file: BorrowedFd, socket: BorrowedFd, mut offset: u64, limit: u64) -> PartSent {
    let mut bytes = 0;
    let stop = loop {
        if bytes == limit {
            break Stop::Limit;
        }
        match rustix::fs::sendfile(socket, file, Some(&mut offset), (limit - bytes) as usize) {
            Ok(0) => break Stop::EndOfFile,
            Ok(n) => bytes += n as u64,
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => break Stop::Full,
            Err(errno) => break Stop::Failed(errno),
        }
    };
    PartSent { bytes, stop }
}
