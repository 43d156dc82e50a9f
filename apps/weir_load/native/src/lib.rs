//! What the load generator does in native code: it counts latencies ([`latencies`]), wakes a process at a nanosecond
//! ([`alarm`]) and speaks TLS ([`tls`]). [`nif`] is the boundary to the Erlang module `weir_load_nif`.
//!
//! The VM's functions come from the VM that loads the library. Unit tests have none: they are built without the
//! boundary.

#![cfg_attr(test, allow(dead_code))]

#[cfg(not(test))]
mod alarm;
mod latencies;
#[cfg(not(test))]
mod nif;
mod tls;

#[cfg(not(test))]
rustler::init!("weir_load_nif");
