//! System calls, safe: the epoll instance, what ends a wait in it, socket options, files, the clock, and the buffer that reads go into.
//!
//! Each module is a thin cover of a few calls: it keeps no state of a socket and knows nothing of the VM. May use `value`;
//! `term` is its neighbour.

pub mod clock;
pub mod epoll;
pub mod file;
pub mod scheduler;
pub mod scratch;
pub mod sockopt;
mod thread;
pub mod waker;
