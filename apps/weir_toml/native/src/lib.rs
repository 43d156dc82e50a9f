//! TOML from bytes to terms, and where in the bytes a key stands: a [`document`] with the line of every value, and `nif`, the
//! boundary to the Erlang module `weir_toml_nif`.

#![cfg_attr(test, allow(dead_code))]

mod document;
#[cfg(not(test))]
mod nif;

#[cfg(not(test))]
rustler::init!("weir_toml_nif");
