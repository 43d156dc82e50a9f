//! SIGTERM and SIGINT as a descriptor in the poller.

use std::io;
use std::os::unix::net::UnixStream;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::low_level::pipe;

use crate::poller::{Interest, Poller, Token};

/// A self-pipe that becomes readable on SIGTERM or SIGINT. Unlike a flag, it also ends an
/// `epoll_wait` that starts just after the signal, without a timeout.
#[derive(Debug)]
pub struct StopSignal {
    pipe: UnixStream,
}

impl StopSignal {
    /// Installs handlers of SIGTERM and SIGINT for the process.
    pub fn install() -> io::Result<Self> {
        let (pipe, writer) = UnixStream::pair()?;
        pipe::register(SIGTERM, writer.try_clone()?)?;
        pipe::register(SIGINT, writer)?;
        Ok(Self { pipe })
    }

    /// Makes `poller` report the signal as an event with `token`.
    pub fn register(&self, poller: &Poller, token: Token) -> io::Result<()> {
        Ok(poller.add(&self.pipe, token, Interest::Level)?)
    }
}
