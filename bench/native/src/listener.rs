//! A listening TCP socket.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::{Errno, Result};
use rustix::net::{SocketFlags, accept_with, bind, getsockname, listen, sockopt};

/// More than any kernel grants: the limit is `net.core.somaxconn`.
const BACKLOG: i32 = 65_535;

/// A non-blocking listener.
#[derive(Debug)]
pub struct Listener {
    socket: OwnedFd,
    address: SocketAddr,
}

/// The result of an accept.
#[derive(Debug)]
pub enum Accepted {
    /// A new non-blocking connection.
    Connection(OwnedFd),
    /// The backlog is empty.
    Nobody,
    /// No descriptor is left in the process or the system; the connection stays in the backlog.
    NoDescriptor,
}

impl Listener {
    /// Listens on an address; port 0 takes a free one.
    pub fn bind(ip: IpAddr, port: u16) -> io::Result<Self> {
        Self::open(ip, port, false)
    }

    /// The same with SO_REUSEPORT, on a port that other listeners share.
    pub fn bind_shared(ip: IpAddr, port: u16) -> io::Result<Self> {
        Self::open(ip, port, true)
    }

    fn open(ip: IpAddr, port: u16, is_shared: bool) -> io::Result<Self> {
        let wanted = SocketAddr::new(ip, port);
        let socket = crate::socket::stream(&wanted)?;
        sockopt::set_socket_reuseaddr(&socket, true)?;
        if is_shared {
            sockopt::set_socket_reuseport(&socket, true)?;
        }
        // Accepted sockets inherit TCP_NODELAY, which saves a system call for each connection.
        sockopt::set_tcp_nodelay(&socket, true)?;
        bind(&socket, &wanted)?;
        listen(&socket, BACKLOG)?;
        let address = SocketAddr::try_from(getsockname(&socket)?)?;
        Ok(Self { socket, address })
    }

    /// Limits the send buffer of connections accepted from now on, which inherit it.
    pub fn limit_send_buffer(&self, bytes: usize) -> io::Result<()> {
        Ok(sockopt::set_socket_send_buffer_size(&self.socket, bytes)?)
    }

    /// The local port.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Takes the next connection from the backlog.
    pub fn accept(&self) -> Result<Accepted> {
        loop {
            match accept_with(&self.socket, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
                Ok(connection) => return Ok(Accepted::Connection(connection)),
                Err(Errno::AGAIN) => return Ok(Accepted::Nobody),
                Err(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => {
                    return Ok(Accepted::NoDescriptor);
                }
                // accept(2): these are errors of the connection in the backlog, not of the
                // listener.
                Err(
                    Errno::CONNABORTED
                    | Errno::INTR
                    | Errno::PROTO
                    | Errno::NETDOWN
                    | Errno::NETUNREACH
                    | Errno::HOSTDOWN
                    | Errno::HOSTUNREACH
                    | Errno::NOPROTOOPT
                    | Errno::OPNOTSUPP,
                ) => {}
                Err(errno) => return Err(errno),
            }
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
