//! HTTP/1.1, from bytes to terms and back: the head of a request ([`head`], with its [`target`],
//! its [`fields`] and their [`meaning`]), a chunked body ([`chunked`]), the head of a response
//! ([`response`], with the [`date`]), the lines of an access [`log`], and the frames of
//! [`websocket`]. [`nif`] and `nif_websocket` are the boundary to the Erlang module
//! `weir_http_nif`.
//!
//! Everything except the boundary is independent of the VM, and has its own unit tests.

#![cfg_attr(test, allow(dead_code))]

mod chunked;
mod date;
mod fields;
mod head;
mod log;
mod meaning;
#[cfg(not(test))]
mod nif;
#[cfg(not(test))]
mod nif_websocket;
mod refusal;
mod response;
mod target;
mod websocket;

#[cfg(not(test))]
rustler::init!("weir_http_nif");
