//! Operations on sockets, one verb per module: open, connect, accept, read, write, send a file or
//! a broadcast, set an option, move, evacuate, close.
//!
//! The caller holds the lock of the socket. Verbs use each other in one order, which the file
//! `layers` of this crate defines. Closing is below reading and writing, since both may find that
//! the connection has ended. May use `socket` and what is below.

pub mod accept;
pub mod connect;
pub mod evacuation;
pub mod group;
pub mod halt;
pub mod input;
pub mod kernel_options;
pub mod lifecycle;
pub mod listen;
pub mod open;
pub mod options;
pub mod output;
