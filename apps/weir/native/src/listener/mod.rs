//! Who may come in, and where connections wait for a process.

pub mod gate;
