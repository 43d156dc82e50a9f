//! Who may come in, and where connections wait for a process.

pub mod gate;
mod intake;
pub mod ticket;
