//! The native part of the load generator: histograms of latencies ([`latencies`]), alarms in
//! nanoseconds ([`alarm`]) and a TLS client ([`tls`]). [`nif`] is the boundary to the Erlang
//! module `weir_load_nif`.
//!
//! The functions of the VM exist only in a VM that loads the library, so unit tests are built
//! without the boundary.

#![cfg_attr(test, allow(dead_code))]

#[cfg(not(test))]
mod alarm;
mod latencies;
#[cfg(not(test))]
mod nif;
mod tls;

#[cfg(not(test))]
rustler::init!("weir_load_nif");
