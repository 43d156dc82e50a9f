//! Safe wrappers of system calls: epoll, its waker, socket options, files, the clock, and the read
//! buffer.
//!
//! Each module wraps a few calls. It keeps no state of a socket, and does not know the VM. May use
//! `value`; `term` is its neighbour.

pub mod clock;
pub mod epoll;
pub mod file;
pub mod scheduler;
pub mod scratch;
pub mod sockopt;
mod thread;
pub mod waker;
