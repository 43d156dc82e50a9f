//! How bytes, addresses and error numbers become terms of the VM.

pub mod address;
pub mod atoms;
pub mod data;
pub mod errno;
pub mod held;
pub mod message;
