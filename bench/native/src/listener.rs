//! A listening TCP socket.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::{Errno, Result};
use rustix::net::{SocketFlags, accept_with, bind, getsockname, listen, sockopt};

/// Asks for more than any kernel grants: the limit is `net.core.somaxconn`.
const BACKLOG: i32 = 65_535;

/// A non-blocking listener.
#[derive(Debug)]
pub struct Listener {
    socket: OwnedFd,
    address: SocketAddr,
}

/// What an accept found.
#[derive(Debug)]
pub enum Accepted {
    /// A new non-blocking connection.
    Connection(OwnedFd),
    /// Nobody waits.
    Nobody,
    /// The process or the system has no descriptor left; the connection still waits in the backlog.
    NoDescriptor,
}

impl Listener {
    /// Listens on an address; port 0 takes a free one.
    pub fn bind(ip: IpAddr, port: u16) -> io::Result<Self> {
        Self::open(ip, port, false)
    }

    /// The same on a port that others listen on as well, who have asked for it, too.
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
        // Accepted sockets inherit it: one system call here instead of one for each connection.
        sockopt::set_tcp_nodelay(&socket, true)?;
        bind(&socket, &wanted)?;
        listen(&socket, BACKLOG)?;
        let address = SocketAddr::try_from(getsockname(&socket)?)?;
        Ok(Self { socket, address })
    }

    /// Bounds the send buffer of connections that are accepted from now on: they inherit it.
    pub fn limit_send_buffer(&self, bytes: usize) -> io::Result<()> {
        Ok(sockopt::set_socket_send_buffer_size(&self.socket, bytes)?)
    }

    /// The port that is listened on.
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
                // accept(2): errors of the connection that was waiting, not of the listener.
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
