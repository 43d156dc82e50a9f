//! What happens to sockets, a verb to a module: open, connect, accept, read, write, send a file or a broadcast, set an
//! option, move, evacuate, close.
//!
//! Each takes a socket whose lock the caller has. Verbs use each other in one order, which the list `layers` of this crate
//! has: how connections end is below what reads and writes, since both may end in it. May use `socket` and what is below.

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
