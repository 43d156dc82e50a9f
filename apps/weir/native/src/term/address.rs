//! Socket addresses as terms.
//!
//! Addresses to bind or connect are `{{A, B, C, D}, Port}`, `{{A, B, C, D, E, F, G, H}, Port,
//! FlowInfo, ScopeId}` or `{local, Path}`. sockname and peername return the terms of gen_tcp,
//! without flow information and scope.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use rustix::io::Errno;
use rustix::net::addr::SocketAddrArg;
use rustix::net::{AddressFamily, SocketAddrAny, SocketAddrUnix};
use rustler::{Atom, Binary, Encoder, Env, Error, NewBinary, NifResult, Term};

use crate::term::atoms;

/// Size of the family, which precedes the path in a `sockaddr_un`.
const FAMILY_SIZE: usize = std::mem::size_of::<libc::sa_family_t>();

/// The longest path that leaves room for its null byte; see unix(7).
const PATH_MAX: usize = 107;

/// Decodes an address. EINVAL for a local path that is too long.
pub fn decode(term: Term) -> NifResult<rustix::io::Result<SocketAddrAny>> {
    if let Ok((ip, port)) = term.decode::<((u8, u8, u8, u8), u16)>() {
        let (a, b, c, d) = ip;
        return Ok(Ok(SocketAddrV4::new(Ipv4Addr::new(a, b, c, d), port).as_any()));
    }
    if let Ok((ip, port, flow, scope)) = term.decode::<(Term, u16, u32, u32)>() {
        let parts = rustler::types::tuple::get_tuple(ip)?;
        let parts: Vec<u16> = parts.into_iter().map(|part| part.decode()).collect::<NifResult<_>>()?;
        let parts: [u16; 8] = parts.try_into().map_err(|_| Error::BadArg)?;
        // The inet driver passes the flow information to the kernel unchanged, in host byte order.
        let address = SocketAddrV6::new(Ipv6Addr::from(parts), port, u32::from_be(flow), scope);
        return Ok(Ok(address.as_any()));
    }
    let (local, path): (Atom, Binary) = term.decode()?;
    if local != atoms::local() {
        return Err(Error::BadArg);
    }
    Ok(decode_local(&path).map(|address| address.as_any()))
}

/// Decodes a path, or an abstract name if it begins with a null byte. If it is empty, the kernel
/// chooses a name.
fn decode_local(path: &[u8]) -> rustix::io::Result<SocketAddrUnix> {
    match path {
        [first, ..] if *first != 0 && path.len() > PATH_MAX => Err(Errno::INVAL),
        [] => Ok(SocketAddrUnix::new_unnamed()),
        [0, name @ ..] => SocketAddrUnix::new_abstract_name(name).map_err(|_| Errno::INVAL),
        // For the kernel a path ends at its first null byte.
        _ => SocketAddrUnix::new(path.split(|&byte| byte == 0).next().unwrap_or_default()).map_err(|_| Errno::INVAL),
    }
}

/// Encodes as `{Address, Port}` or `{local, Path}`. EAFNOSUPPORT for another family.
pub fn encode(env: Env, address: SocketAddrAny) -> rustix::io::Result<Term> {
    if address.address_family() == AddressFamily::UNIX {
        return Ok(encode_local(env, &address));
    }
    let address = SocketAddr::try_from(address).map_err(|_| Errno::AFNOSUPPORT)?;
    let ip = match address {
        SocketAddr::V4(address) => {
            let [a, b, c, d] = address.ip().octets();
            (a, b, c, d).encode(env)
        }
        SocketAddr::V6(address) => {
            let parts = address.ip().segments().map(|part| part.encode(env));
            rustler::types::tuple::make_tuple(env, &parts)
        }
    };
    Ok((ip, address.port()).encode(env))
}

/// Encodes a path without its null byte, an abstract name with it, or an empty path for an unnamed
/// socket. rustix cannot decode a path that fills the whole field, which another program may have
/// bound.
fn encode_local<'a>(env: Env<'a>, address: &SocketAddrAny) -> Term<'a> {
    // SAFETY: the kernel has written, and rustix has initialised, this many bytes of the storage.
    let bytes = unsafe { std::slice::from_raw_parts(address.as_ptr().cast::<u8>(), address.addr_len() as usize) };
    let path = bytes.get(FAMILY_SIZE..).unwrap_or_default();
    let path = match path.iter().position(|&byte| byte == 0) {
        None | Some(0) => path,
        Some(end) => &path[..end],
    };
    let mut binary = NewBinary::new(env, path.len());
    binary.as_mut_slice().copy_from_slice(path);
    (atoms::local(), Term::from(binary)).encode(env)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_paths_and_names_have_their_limits() {
        let long = |size: usize, first: u8| {
            let mut path = vec![b'x'; size];
            path[0] = first;
            path
        };
        assert!(decode_local(&long(107, b'/')).is_ok());
        assert_eq!(decode_local(&long(108, b'/')).err(), Some(Errno::INVAL));
        assert!(decode_local(&long(108, 0)).is_ok());
        assert_eq!(decode_local(&long(109, 0)).err(), Some(Errno::INVAL));
    }

    #[test]
    fn a_local_path_ends_with_its_null() {
        let address = decode_local(b"path\0rest").expect("a path");
        assert_eq!(address.path_bytes(), Some(&b"path"[..]));
        let address = decode_local(b"\0na\0me").expect("a name");
        assert_eq!(address.abstract_name(), Some(&b"na\0me"[..]));
        assert!(decode_local(b"").expect("no name").is_unnamed());
    }
}
