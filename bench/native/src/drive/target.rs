//! The server under test, and connections to it.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::io::Result;
use rustix::net::{bind, sockopt};

use crate::socket;

/// Connections for each source address. Linux has about 28,000 ephemeral ports and uses those of
/// one parity first: when these are used up, it searches all 14,000 of them again before it takes
/// one of the others.
const PER_SOURCE: u32 = 10_000;

/// The server that the load goes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    address: SocketAddr,
    spreads_sources: bool,
}

impl Target {
    /// A target for this many concurrent connections. On loopback, connections that do not fit on
    /// one source address are spread over several.
    pub fn new(address: SocketAddr, connections: u32) -> Self {
        let is_loopback = matches!(address.ip(), IpAddr::V4(ip) if ip.is_loopback());
        Self {
            address,
            spreads_sources: is_loopback && connections > PER_SOURCE,
        }
    }

    /// Starts to connect the connection with this index. The outcome is the socket's first event.
    /// Closing it sends a reset, so that neither side keeps a TIME_WAIT: tens of thousands of them
    /// would disturb the next measurements.
    pub fn dial(&self, index: u32) -> Result<OwnedFd> {
        let socket = socket::stream(&self.address)?;
        sockopt::set_tcp_nodelay(&socket, true)?;
        self.connect(&socket, index)?;
        Ok(socket)
    }

    /// As [`dial`](Self::dial), with the smallest receive buffer of the kernel, for a connection
    /// that is never read.
    pub fn dial_to_ignore(&self, index: u32) -> Result<OwnedFd> {
        let socket = socket::stream(&self.address)?;
        sockopt::set_socket_recv_buffer_size(&socket, 1)?;
        self.connect(&socket, index)?;
        Ok(socket)
    }

    fn connect(&self, socket: &OwnedFd, index: u32) -> Result<()> {
        sockopt::set_socket_linger(socket, Some(Duration::ZERO))?;
        if let Some(source) = self.source(index) {
            bind(socket, &SocketAddr::from((source, 0)))?;
        }
        socket::connect(socket, &self.address)
    }

    fn source(&self, index: u32) -> Option<Ipv4Addr> {
        // 127.0.0.1 is left to other programs of the machine, and each server has its own source
        // addresses: a bound port is taken for all destinations.
        let [high, low] = self.address.port().to_be_bytes();
        self.spreads_sources.then(|| {
            Ipv4Addr::from_bits(Ipv4Addr::new(127, high, low, 2).to_bits() + index / PER_SOURCE)
        })
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.address.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_loopback_connections_leave_from_several_addresses() {
        let loopback = SocketAddr::from(([127, 0, 0, 1], 0x1234));
        assert_eq!(Target::new(loopback, 10_000).source(9_999), None);
        let target = Target::new(loopback, 50_000);
        let source = |last| Some(Ipv4Addr::new(127, 0x12, 0x34, last));
        assert_eq!(target.source(0), source(2));
        assert_eq!(target.source(9_999), source(2));
        assert_eq!(target.source(10_000), source(3));
        let elsewhere = SocketAddr::from(([192, 0, 2, 1], 80));
        assert_eq!(Target::new(elsewhere, 50_000).source(0), None);
        let most = Target::new(loopback, 1_000_000).source(999_999).unwrap();
        assert!(most.is_loopback());
    }
}
