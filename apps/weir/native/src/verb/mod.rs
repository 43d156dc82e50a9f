//! What happens to sockets: open, connect, accept, read, write, send a file or a broadcast, change an option.

pub mod accept;
pub mod connect;
pub mod group;
pub mod input;
pub mod kernel_options;
pub mod lifecycle;
pub mod open;
pub mod options;
pub mod output;
