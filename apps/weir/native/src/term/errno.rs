//! Error numbers as the atoms of `inet:posix()`.

use rustix::io::Errno;
use rustler::{Atom, Env};

macro_rules! names {
    ($($name:ident),* $(,)?) => {
        fn name(errno: Errno) -> &'static str {
            match errno.raw_os_error() {
                $(libc::$name => stringify!($name),)*
                _ => "EUNKNOWN",
            }
        }
    };
}

names![
    E2BIG,
    EACCES,
    EADDRINUSE,
    EADDRNOTAVAIL,
    EAFNOSUPPORT,
    EAGAIN,
    EALREADY,
    EBADF,
    EBUSY,
    ECONNABORTED,
    ECONNREFUSED,
    ECONNRESET,
    EDESTADDRREQ,
    EDOM,
    EEXIST,
    EFAULT,
    EHOSTDOWN,
    EHOSTUNREACH,
    EINPROGRESS,
    EINTR,
    EINVAL,
    EIO,
    EISDIR,
    EISCONN,
    ELOOP,
    EMFILE,
    EMSGSIZE,
    ENAMETOOLONG,
    ENETDOWN,
    ENETRESET,
    ENETUNREACH,
    ENFILE,
    ENODATA,
    ENOBUFS,
    ENODEV,
    ENOENT,
    ENOMEM,
    ENOPROTOOPT,
    ENOSPC,
    ENOSYS,
    ENOTCONN,
    ENOTDIR,
    ENOTSOCK,
    ENXIO,
    EOPNOTSUPP,
    EOVERFLOW,
    EPERM,
    EPIPE,
    EPROTO,
    EPROTONOSUPPORT,
    EPROTOTYPE,
    ERANGE,
    EROFS,
    ESHUTDOWN,
    ESOCKTNOSUPPORT,
    ESPIPE,
    ESRCH,
    ETIMEDOUT,
    ETOOMANYREFS,
];

/// The atom of an error number, in lower case, as in `{error, econnrefused}`; `eunknown` for a
/// number that no socket call returns.
pub fn atom(env: Env, errno: Errno) -> Atom {
    // The names are ASCII and short: making the atom cannot fail.
    Atom::from_str(env, &name(errno).to_ascii_lowercase()).unwrap_or_else(|_| crate::term::atoms::einval())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_their_names() {
        assert_eq!(name(Errno::CONNREFUSED), "ECONNREFUSED");
        assert_eq!(name(Errno::MFILE), "EMFILE");
        assert_eq!(name(Errno::from_raw_os_error(3999)), "EUNKNOWN");
    }
}
