//! Regular files: opened so that nobody waits for a pipe or is led elsewhere, and sent to a socket without a copy.
//!
//! To open a file, and to read what is not in memory, may wait for a disk: both are for dirty schedulers.

use std::io::IoSliceMut;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Stat};
use rustix::io::{Errno, ReadWriteFlags, retry_on_intr as retry};
use rustix::time::{ClockId, clock_gettime};

/// How far apart a file is looked at for whether it is in memory. The kernel reads ahead by at least as much, and memory
/// that it takes back in the meantime cannot be excluded anyway: at worst a scheduler waits for a disk once.
const STRIDE: u64 = 16 * 1024;

/// For so many milliseconds a file that was in memory as a whole counts as being there: its pages were used just now, and
/// are the last that the kernel takes. To look at each costs 6 % of sending them, or more.
const TRUST_MS: i64 = 1000;

/// Bytes of a file that is looked at as a whole.
const SMALL: u64 = 1024 * 1024;

/// A regular file, open for reading.
pub struct File {
    fd: OwnedFd,
    pub size: u64,
    /// When it was last changed, in nanoseconds since 1970.
    pub modified: i64,
    /// When the whole of it was last seen in memory, in milliseconds of the monotonic clock.
    seen: AtomicI64,
}

/// Why there is no such file.
pub enum NotOpen {
    Directory,
    /// A pipe, a device or a socket, or a symbolic link where they are not followed.
    NotRegular,
    Failed(Errno),
}

impl From<Errno> for NotOpen {
    fn from(errno: Errno) -> NotOpen {
        NotOpen::Failed(errno)
    }
}

/// How far a part of a file came.
pub struct PartSent {
    /// What the kernel took.
    pub bytes: u64,
    pub stop: Stop,
}

/// Why it came no further.
pub enum Stop {
    Limit,
    EndOfFile,
    /// The kernel takes no more: an edge follows when it does.
    Full,
    Failed(Errno),
}

impl File {
    /// Opens the file of that name, wherever symbolic links lead.
    pub fn open(path: &Path) -> Result<File, NotOpen> {
        File::open_at(CWD, path, AtFlags::empty(), OFlags::empty())
    }

    /// Opens a file below a directory, by the names on the way to it. Symbolic links are not followed, not even
    /// one that takes a directory's place meanwhile. Names are those of files, neither `..` nor a path.
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

    /// To open a device could do something, and to open a pipe could wait: it is looked at before, and after, since it may
    /// have been exchanged.
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

    /// How many of `limit` bytes from `offset` on are in memory; see [`in_memory`].
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

    /// Sends a part as far as the socket takes it; see [`send`].
    pub fn send(&self, socket: BorrowedFd, offset: u64, limit: u64) -> PartSent {
        send(self.fd.as_fd(), socket, offset, limit)
    }

    /// Reads into `buffer` from `offset` on: as much as there is of it.
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

/// How many of the bytes from `offset` on are in memory, from the first on: `limit`, or up to the first that is not.
pub fn in_memory(file: BorrowedFd, offset: u64, limit: u64) -> u64 {
    let mut checked = 0;
    while checked < limit {
        let mut byte = [0];
        let mut slice = [IoSliceMut::new(&mut byte)];
        match rustix::io::preadv2(file, &mut slice, offset + checked, ReadWriteFlags::NOWAIT) {
            // Nothing follows, so nothing has to be waited for.
            Ok(0) => return limit,
            Ok(_) => checked += STRIDE - (offset + checked) % STRIDE,
            // Not there, or a file system that cannot tell.
            Err(_) => break,
        }
    }
    checked.min(limit)
}

/// Sends up to `limit` bytes from `offset` on, as far as the kernel takes them; may wait for the file's disk.
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
