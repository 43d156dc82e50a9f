//! Internet addresses as terms.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use rustix::io::Errno;
use rustix::net::SocketAddrAny;
use rustler::{Encoder, Env, Error, NifResult, Term};

/// Decodes `{A, B, C, D}` or `{A, B, C, D, E, F, G, H}`.
pub fn decode(address: Term, port: u16) -> NifResult<SocketAddr> {
    let ip = if let Ok((a, b, c, d)) = address.decode() {
        IpAddr::V4(Ipv4Addr::new(a, b, c, d))
    } else {
        let parts = rustler::types::tuple::get_tuple(address)?;
        let parts: Vec<u16> = parts.into_iter().map(|part| part.decode()).collect::<NifResult<_>>()?;
        let parts: [u16; 8] = parts.try_into().map_err(|_| Error::BadArg)?;
        IpAddr::V6(Ipv6Addr::from(parts))
    };
    Ok(SocketAddr::new(ip, port))
}

/// Encodes as `{Address, Port}`. EAFNOSUPPORT for an address that is not of the Internet.
pub fn encode(env: Env, address: SocketAddrAny) -> rustix::io::Result<Term> {
    let address = SocketAddr::try_from(address).map_err(|_| Errno::AFNOSUPPORT)?;
    let ip = match address.ip() {
        IpAddr::V4(ip) => {
            let [a, b, c, d] = ip.octets();
            (a, b, c, d).encode(env)
        }
        IpAddr::V6(ip) => {
            let parts = ip.segments().map(|part| part.encode(env));
            rustler::types::tuple::make_tuple(env, &parts)
        }
    };
    Ok((ip, address.port()).encode(env))
}
