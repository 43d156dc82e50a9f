//! TOML for Erlang: [`document`] parses bytes into values with their lines, and `nif` is the
//! boundary to the Erlang module `weir_toml_nif`.

#![cfg_attr(test, allow(dead_code))]

mod document;
#[cfg(not(test))]
mod nif;

#[cfg(not(test))]
rustler::init!("weir_toml_nif");
