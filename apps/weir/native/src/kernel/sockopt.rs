//! setsockopt(2) and getsockopt(2).

use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsRawFd, BorrowedFd};

use libc::{c_int, socklen_t};
use rustix::io::{Errno, Result};

use crate::value::options::Linger;

/// Values that options of the kernel are made of: plain data, any bit pattern of which is a value.
///
/// # Safety
/// The type must have no padding, no pointers and no invalid bit patterns.
pub unsafe trait Plain: Copy {}
// SAFETY: an integer.
unsafe impl Plain for c_int {}
// SAFETY: two integers of the same size.
unsafe impl Plain for libc::linger {}

impl From<libc::linger> for Linger {
    fn from(linger: libc::linger) -> Linger {
        match (linger.l_onoff, linger.l_linger) {
            (0, _) => Linger::Off,
            (_, 0) => Linger::Reset,
            _ => Linger::Wait,
        }
    }
}

/// Sets an option to a value.
pub fn set<T: Plain>(fd: BorrowedFd, level: c_int, name: c_int, value: &T) -> Result<()> {
    // SAFETY: `Plain` has no padding, so all its bytes are initialised.
    let bytes = unsafe { std::slice::from_raw_parts((value as *const T).cast(), size_of::<T>()) };
    set_bytes(fd, level, name, bytes)
}

/// Sets an option of type int.
pub fn set_int(fd: BorrowedFd, level: c_int, name: c_int, value: c_int) -> Result<()> {
    set(fd, level, name, &value)
}

/// Sets an option to bytes whose meaning is between the caller and the kernel.
pub fn set_bytes(fd: BorrowedFd, level: c_int, name: c_int, value: &[u8]) -> Result<()> {
    // SAFETY: the kernel reads the bytes of the slice and nothing else.
    let result =
        unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, value.as_ptr().cast(), value.len() as socklen_t) };
    check(result)
}

/// Gets an option's value.
pub fn get<T: Plain>(fd: BorrowedFd, level: c_int, name: c_int) -> Result<T> {
    let mut value = MaybeUninit::<T>::zeroed();
    let mut length = size_of::<T>() as socklen_t;
    // SAFETY: the kernel writes at most `length` bytes, the size of the value.
    let result = unsafe { libc::getsockopt(fd.as_raw_fd(), level, name, value.as_mut_ptr().cast(), &mut length) };
    check(result)?;
    // SAFETY: zeroed before and perhaps overwritten; any bit pattern of `Plain` is a value.
    Ok(unsafe { value.assume_init() })
}

/// Gets an option as bytes, at most as many as `value` has room for; returns how many.
pub fn get_bytes(fd: BorrowedFd, level: c_int, name: c_int, value: &mut [u8]) -> Result<usize> {
    let mut length = value.len() as socklen_t;
    // SAFETY: the kernel writes at most `length` bytes, the size of the slice.
    let result = unsafe { libc::getsockopt(fd.as_raw_fd(), level, name, value.as_mut_ptr().cast(), &mut length) };
    check(result).map(|()| length as usize)
}

/// Bytes that were written and that the peer has not taken, as far as the kernel counts them.
pub fn unsent(fd: BorrowedFd) -> Result<usize> {
    let mut bytes: c_int = 0;
    // SAFETY: the kernel writes one int.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), libc::TIOCOUTQ, &mut bytes) };
    check(result).map(|()| usize::try_from(bytes).unwrap_or(0))
}

fn check(result: c_int) -> Result<()> {
    if result == 0 {
        return Ok(());
    }
    let errno = std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EINVAL);
    Err(Errno::from_raw_os_error(errno))
}
