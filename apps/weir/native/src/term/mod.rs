//! How bytes, addresses and error numbers become terms of the VM, and terms bytes.
//!
//! Atoms stand here, and binaries of the VM that outlive a call ([`held`]), alone or as a message for many ([`message`]).
//! Options are passed in: no module here knows sockets. May use `value`; `kernel` is its neighbour.

pub mod address;
pub mod atoms;
pub mod data;
pub mod errno;
pub mod held;
pub mod message;
pub mod resource;
pub mod sender;
