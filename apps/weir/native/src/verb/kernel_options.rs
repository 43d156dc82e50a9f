//! Options kept by the kernel, and their special cases.

use std::os::fd::BorrowedFd;

use libc::c_int;
use rustix::io::{Errno, Result};
use rustler::{Atom, Binary, Encoder, Env, Error, NewBinary, NifResult, Term};

use crate::kernel::sockopt;
use crate::term::atoms;

/// An option of type int or boolean.
#[derive(Clone, Copy)]
pub struct KernelOption {
    pub level: c_int,
    pub name: c_int,
    pub boolean: bool,
    /// Whether setopts reports a refusal by the kernel. The inet driver ignores it for older
    /// options.
    pub told: bool,
}

/// Finds an option by name.
pub fn find(name: Atom) -> Option<KernelOption> {
    const BOOLEAN: bool = true;
    const INT: bool = false;
    const TOLD: bool = true;
    const SILENT: bool = false;
    use libc::{IPPROTO_IP, IPPROTO_IPV6, IPPROTO_TCP, SOL_SOCKET};
    let options = [
        (atoms::nodelay(), IPPROTO_TCP, libc::TCP_NODELAY, BOOLEAN, SILENT),
        (atoms::keepalive(), SOL_SOCKET, libc::SO_KEEPALIVE, BOOLEAN, SILENT),
        (atoms::reuseaddr(), SOL_SOCKET, libc::SO_REUSEADDR, BOOLEAN, SILENT),
        (atoms::recbuf(), SOL_SOCKET, libc::SO_RCVBUF, INT, SILENT),
        (atoms::sndbuf(), SOL_SOCKET, libc::SO_SNDBUF, INT, SILENT),
        (atoms::priority(), SOL_SOCKET, libc::SO_PRIORITY, INT, TOLD),
        (atoms::tos(), IPPROTO_IP, libc::IP_TOS, INT, TOLD),
        (atoms::tclass(), IPPROTO_IPV6, libc::IPV6_TCLASS, INT, TOLD),
        (atoms::ttl(), IPPROTO_IP, libc::IP_TTL, INT, TOLD),
        (atoms::recvtos(), IPPROTO_IP, libc::IP_RECVTOS, BOOLEAN, TOLD),
        (atoms::recvtclass(), IPPROTO_IPV6, libc::IPV6_RECVTCLASS, BOOLEAN, TOLD),
        (atoms::recvttl(), IPPROTO_IP, libc::IP_RECVTTL, BOOLEAN, TOLD),
        (atoms::ipv6_v6only(), IPPROTO_IPV6, libc::IPV6_V6ONLY, BOOLEAN, TOLD),
        (atoms::dontroute(), SOL_SOCKET, libc::SO_DONTROUTE, BOOLEAN, SILENT),
        (atoms::nopush(), IPPROTO_TCP, libc::TCP_CORK, BOOLEAN, SILENT),
        (atoms::reuseport(), SOL_SOCKET, libc::SO_REUSEPORT, BOOLEAN, SILENT),
        // Linux balances connections over all sockets of a port.
        (atoms::reuseport_lb(), SOL_SOCKET, libc::SO_REUSEPORT, BOOLEAN, SILENT),
        (atoms::keepcnt(), IPPROTO_TCP, libc::TCP_KEEPCNT, INT, SILENT),
        (atoms::keepidle(), IPPROTO_TCP, libc::TCP_KEEPIDLE, INT, SILENT),
        (atoms::keepintvl(), IPPROTO_TCP, libc::TCP_KEEPINTVL, INT, SILENT),
        (atoms::user_timeout(), IPPROTO_TCP, libc::TCP_USER_TIMEOUT, INT, TOLD),
    ];
    options.into_iter().find(|option| option.0 == name).map(|(_, level, name, boolean, told)| KernelOption {
        level,
        name,
        boolean,
        told,
    })
}

/// Sets an option to bytes. Setting the type of service changes the priority in the kernel; for
/// users they are independent, so the priority is restored.
pub fn set_bytes(fd: BorrowedFd, level: c_int, name: c_int, value: &[u8]) -> Result<()> {
    if (level, name) != (libc::IPPROTO_IP, libc::IP_TOS) {
        return sockopt::set_bytes(fd, level, name, value);
    }
    let priority = priority(fd);
    sockopt::set_bytes(fd, level, name, value)?;
    if let Some(priority) = priority {
        // We may not be allowed to set a priority that we inherited.
        let _ = sockopt::set_int(fd, libc::SOL_SOCKET, libc::SO_PRIORITY, priority);
    }
    Ok(())
}

/// Sets an option of type int.
pub fn set_int(fd: BorrowedFd, level: c_int, name: c_int, value: c_int) -> Result<()> {
    set_bytes(fd, level, name, &value.to_ne_bytes())
}

/// The priority, if the kernel returns it. Accepted sockets do not inherit it.
pub fn priority(fd: BorrowedFd) -> Option<c_int> {
    sockopt::get(fd, libc::SOL_SOCKET, libc::SO_PRIORITY).ok()
}

/// Binds to a network device by its name; an empty name unbinds.
pub fn bind_to_device(fd: BorrowedFd, name: &[u8]) -> Result<()> {
    let mut padded = [0; libc::IFNAMSIZ];
    padded.get_mut(..name.len()).ok_or(Errno::INVAL)?.copy_from_slice(name);
    sockopt::set_bytes(fd, libc::SOL_SOCKET, libc::SO_BINDTODEVICE, &padded)
}

/// The device that the socket is bound to; an empty name for none.
pub fn bound_device<'a>(env: Env<'a>, fd: BorrowedFd) -> Option<Term<'a>> {
    let mut name = [0; libc::IFNAMSIZ];
    let length = sockopt::get_bytes(fd, libc::SOL_SOCKET, libc::SO_BINDTODEVICE, &mut name).ok()?;
    let name = name[..length].split(|&byte| byte == 0).next().unwrap_or_default();
    Some(binary(env, name))
}

/// Bytes as a binary.
pub fn binary<'a>(env: Env<'a>, bytes: &[u8]) -> Term<'a> {
    let mut binary = NewBinary::new(env, bytes.len());
    binary.as_mut_slice().copy_from_slice(bytes);
    binary.into()
}

/// The values that the last packet carried for recvtos, recvtclass and recvttl, as `[{tos, _} |
/// {tclass, _} | {ttl, _}]`. Badarg for unix sockets.
pub fn packet_options<'a>(env: Env<'a>, fd: BorrowedFd) -> NifResult<Option<Term<'a>>> {
    /// `IP_PKTOPTIONS` and `IPV6_2292PKTOPTIONS` of linux/in.h and linux/in6.h.
    const IP_PKTOPTIONS: c_int = 9;
    const IPV6_PKTOPTIONS: c_int = 6;
    let (level, name) = match sockopt::get::<c_int>(fd, libc::SOL_SOCKET, libc::SO_DOMAIN) {
        Ok(libc::AF_INET) => (libc::IPPROTO_IP, IP_PKTOPTIONS),
        Ok(libc::AF_INET6) => (libc::IPPROTO_IPV6, IPV6_PKTOPTIONS),
        _ => return Err(Error::BadArg),
    };
    let mut messages = [0; 256];
    let Ok(length) = sockopt::get_bytes(fd, level, name, &mut messages) else {
        return Ok(None);
    };
    let mut options = Vec::new();
    let mut rest = &messages[..length];
    while let Some((level, kind, value, next)) = control_message(rest) {
        let name = match (level, kind) {
            (libc::IPPROTO_IP, libc::IP_TOS) => Some(atoms::tos()),
            (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => Some(atoms::tclass()),
            (libc::IPPROTO_IP, libc::IP_TTL) => Some(atoms::ttl()),
            _ => None,
        };
        options.extend(name.map(|name| (name, value)));
        rest = next;
    }
    Ok(Some((atoms::pktoptions(), options).encode(env)))
}

/// Parses the first control message: its level, type and number, and the remaining bytes; see
/// cmsg(3).
fn control_message(bytes: &[u8]) -> Option<(c_int, c_int, c_int, &[u8])> {
    const INT: usize = size_of::<c_int>();
    const LENGTH: usize = size_of::<usize>();
    const HEADER: usize = LENGTH + 2 * INT;
    let int = |at: usize| bytes.get(at..at + INT)?.try_into().ok().map(c_int::from_ne_bytes);
    let length = usize::from_ne_bytes(bytes.get(..LENGTH)?.try_into().ok()?);
    let (level, kind) = (int(LENGTH)?, int(LENGTH + INT)?);
    let data = bytes.get(HEADER..length)?;
    // The type of service comes as a byte or as an int.
    let value = match data.try_into() {
        Ok(data) => c_int::from_ne_bytes(data),
        Err(_) => c_int::from(*data.first()?),
    };
    let next = bytes.get(length.next_multiple_of(LENGTH)..).unwrap_or_default();
    Some((level, kind, value, next))
}

/// Decodes `{raw, Level, Option, Value}` or `{raw, {Level, Option, Value}}`.
pub fn decode_raw<'a>(term: Term<'a>) -> Option<NifResult<(c_int, c_int, Term<'a>)>> {
    let (tag, level, option, value) = term
        .decode::<(Atom, c_int, c_int, Term)>()
        .or_else(|_| term.decode::<(Atom, (c_int, c_int, Term))>().map(|(tag, (l, o, v))| (tag, l, o, v)))
        .ok()?;
    Some(if tag == atoms::raw() { Ok((level, option, value)) } else { Err(Error::BadArg) })
}

/// Maximum size of a raw option that getopts returns. The inet driver's answer has at most 64 KiB:
/// one byte, and 13 bytes in front of each raw value.
const RAW_MAX: usize = 64 * 1024 - 14;

/// Reads a raw option; `space` is its size in bytes, or a binary of that size.
pub fn get_raw<'a>(
    env: Env<'a>,
    fd: Option<BorrowedFd>,
    level: c_int,
    option: c_int,
    space: Term<'a>,
) -> NifResult<Option<Term<'a>>> {
    let size = match space.decode::<Binary>() {
        Ok(binary) => binary.len(),
        Err(_) => space.decode()?,
    };
    if size > RAW_MAX {
        return Err(Error::BadArg);
    }
    let mut bytes = vec![0; size];
    if let Ok(binary) = space.decode::<Binary>() {
        // Some options read their argument before they overwrite it.
        bytes.copy_from_slice(&binary);
    }
    let Some(Ok(length)) = fd.map(|fd| sockopt::get_bytes(fd, level, option, &mut bytes)) else {
        return Ok(None);
    };
    Ok(Some((atoms::raw(), level, option, binary(env, &bytes[..length])).encode(env)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(level: c_int, kind: c_int, data: &[u8]) -> Vec<u8> {
        let length = size_of::<usize>() + 2 * size_of::<c_int>() + data.len();
        let mut bytes = length.to_ne_bytes().to_vec();
        bytes.extend(level.to_ne_bytes());
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(data);
        bytes.resize(length.next_multiple_of(size_of::<usize>()), 0);
        bytes
    }

    #[test]
    fn control_messages_follow_each_other() {
        let mut bytes = message(libc::IPPROTO_IP, libc::IP_TTL, &64i32.to_ne_bytes());
        bytes.extend(message(libc::IPPROTO_IP, libc::IP_TOS, &[8]));
        let Some((level, kind, value, rest)) = control_message(&bytes) else { panic!("no message") };
        assert_eq!((level, kind, value), (libc::IPPROTO_IP, libc::IP_TTL, 64));
        let Some((level, kind, value, rest)) = control_message(rest) else { panic!("no second message") };
        assert_eq!((level, kind, value), (libc::IPPROTO_IP, libc::IP_TOS, 8));
        assert!(control_message(rest).is_none());
    }

    #[test]
    fn control_messages_that_are_cut_or_empty_end_it() {
        let whole = message(libc::IPPROTO_IP, libc::IP_TTL, &64i32.to_ne_bytes());
        for length in 0..20 {
            assert!(control_message(&whole[..length]).is_none(), "{length}");
        }
        assert!(control_message(&message(0, 0, &[])).is_none());
        assert!(control_message(&[0; 64]).is_none());
        assert!(control_message(&[255; 64]).is_none());
    }
}
