//! setsockopt(2) and getsockopt(2).

use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsRawFd, BorrowedFd};

use libc::{c_int, socklen_t};
use rustix::io::{Errno, Result};

use crate::value::options::Linger;

/// Types of option values: plain data.
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

/// Sets an option to bytes that only the caller and the kernel interpret.
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

/// Gets an option as bytes, at most `value.len()` of them. Returns how many.
pub fn get_bytes(fd: BorrowedFd, level: c_int, name: c_int, value: &mut [u8]) -> Result<usize> {
    let mut length = (value.len() / unit(level, name)) as socklen_t;
    // SAFETY: the kernel writes at most `length` units, which the slice has room for.
    let result = unsafe { libc::getsockopt(fd.as_raw_fd(), level, name, value.as_mut_ptr().cast(), &mut length) };
    check(result).map(|()| value.len().min(length as usize * unit(level, name)))
}

/// The unit of an option's length: instructions for a filter, bytes for all others.
fn unit(level: c_int, name: c_int) -> usize {
    match (level, name) {
        (libc::SOL_SOCKET, libc::SO_GET_FILTER) => size_of::<libc::sock_filter>(),
        _ => 1,
    }
}

/// Makes a listening TCP socket drop connection requests (SYN without ACK). Handshakes in progress
/// continue. Connections inherit the filter, which does not affect them. See SO_ATTACH_FILTER in
/// socket(7): for TCP it sees the segment from its header on.
pub fn drop_new(fd: BorrowedFd) -> Result<()> {
    const FLAGS: u32 = 13;
    const SYN: u32 = 0x02;
    const ACK: u32 = 0x10;
    let step = |code: u32, jt: u8, jf: u8, k: u32| libc::sock_filter { code: code as u16, jt, jf, k };
    let mut steps = [
        step(libc::BPF_LD | libc::BPF_B | libc::BPF_ABS, 0, 0, FLAGS),
        step(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, 0, 0, SYN | ACK),
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, SYN),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, 0),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, u32::MAX),
    ];
    let program = libc::sock_fprog { len: steps.len() as u16, filter: steps.as_mut_ptr() };
    // SAFETY: the kernel reads the program and its `len` steps, which live until it returns, and keeps a copy.
    let result = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            (&raw const program).cast(),
            size_of::<libc::sock_fprog>() as socklen_t,
        )
    };
    check(result)
}

/// For a listening TCP socket: the number of connections in the backlog, and its limit.
/// ENOPROTOOPT if the kernel gives none: for other sockets, and in emulators that know less of
/// TCP_INFO (tcp(7)).
pub fn backlog(fd: BorrowedFd) -> Result<(u32, u32)> {
    let mut info = [0; 32];
    let known = get_bytes(fd, libc::IPPROTO_TCP, libc::TCP_INFO, &mut info)?;
    backlog_of(&info[..known]).ok_or(Errno::NOPROTOOPT)
}

/// For a listening socket these are the fields `tcpi_unacked` and `tcpi_sacked`.
fn backlog_of(info: &[u8]) -> Option<(u32, u32)> {
    const WAITING: usize = 24;
    const LIMIT: usize = 28;
    let word = |at: usize| info.get(at..)?.first_chunk().copied().map(u32::from_ne_bytes);
    Some((word(WAITING)?, word(LIMIT)?))
}

/// Written bytes that the peer has not acknowledged, as far as the kernel counts them.
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

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;

    #[test]
    fn a_filter_is_not_written_beyond_the_room_for_it() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a socket");
        super::drop_new(listener.as_fd()).expect("a filter");
        let mut space = [0xaa; 64];
        let get = |value: &mut [u8]| super::get_bytes(listener.as_fd(), libc::SOL_SOCKET, libc::SO_GET_FILTER, value);
        // It has five instructions, of eight bytes each.
        assert!(get(&mut space[..39]).is_err());
        assert_eq!(space, [0xaa; 64]);
        assert_eq!(get(&mut space[..47]), Ok(40));
        assert!(space[..40] != [0xaa; 40] && space[40..] == [0xaa; 24]);
    }

    #[test]
    fn a_backlog_has_those_that_nobody_has_accepted() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a socket");
        assert_eq!(super::backlog(listener.as_fd()).expect("it listens").0, 0);
        let address = listener.local_addr().expect("an address");
        let _clients = [0; 3].map(|_| TcpStream::connect(address).expect("a connection"));
        let (waiting, limit) = super::backlog(listener.as_fd()).expect("it listens");
        assert_eq!(waiting, 3);
        assert!(limit >= 128);
        let (local, _) = std::os::unix::net::UnixStream::pair().expect("sockets");
        assert!(super::backlog(local.as_fd()).is_err());
    }

    #[test]
    fn an_answer_that_ends_before_the_backlog_is_no_empty_backlog() {
        assert_eq!(super::backlog_of(&[0; 32]), Some((0, 0)));
        for length in [0, 4, 24, 28, 31] {
            assert_eq!(super::backlog_of(&[0; 32][..length]), None);
        }
    }
}
