//! SIGTERM and SIGINT as a descriptor in the poller.

use std::io;
use std::os::unix::net::UnixStream;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::low_level::pipe;

use crate::poller::{Interest, Poller, Token};

/// A self-pipe that becomes readable when the process is asked to stop. A descriptor rather than a flag: a signal that
/// lands just before `epoll_wait` still ends it, with no timeout to bound the wait.
#[derive(Debug)]
pub struct StopSignal {
    pipe: UnixStream,
}

impl StopSignal {
    /// Takes over SIGTERM and SIGINT for the whole process.
    pub fn install() -> io::Result<Self> {
        let (pipe, writer) = UnixStream::pair()?;
        pipe::register(SIGTERM, writer.try_clone()?)?;
        pipe::register(SIGINT, writer)?;
        Ok(Self { pipe })
    }

    /// Has `poller` report the signal as an event of `token`.
    pub fn register(&self, poller: &Poller, token: Token) -> io::Result<()> {
        Ok(poller.add(&self.pipe, token, Interest::Level)?)
    }
}
