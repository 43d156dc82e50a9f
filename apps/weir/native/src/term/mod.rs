//! Conversion between terms of the VM and bytes, addresses and error numbers.
//!
//! Also atoms, and binaries that outlive a call ([`held`]), singly or as a message for many
//! ([`message`]). Options are arguments: no module here knows sockets. May use `value`; `kernel`
//! is its neighbour.

pub mod address;
pub mod atoms;
pub mod data;
pub mod errno;
pub mod held;
pub mod message;
pub mod resource;
pub mod sender;
