//! The native engine of Weir: pollsets, sockets, queues and counters.
//!
//! Each folder is a layer. A module uses only its own layer and those below it; the file `layers`
//! beside this folder lists their order, and `scripts/check-layers` checks it. From the top:
//!
//! - [`nif`]: the boundary to the Erlang module `weir_nif`; it decodes, finds, locks, calls and
//!   encodes;
//! - [`poll`]: the dispatch, which serves ready targets;
//! - [`reactor`] and [`relay`]: connections without a process each;
//! - [`verb`]: operations on sockets;
//! - [`socket`]: one socket as data, and the table of all sockets;
//! - [`listener`]: limits and accept queues;
//! - [`pollset`]: epoll instances and ready lists, which know their targets only by number;
//! - [`term`] and [`kernel`]: bytes as terms, and system calls;
//! - [`value`]: types that need neither the VM nor the kernel, with their tests. This includes the
//!   data structures that schedulers share, which `concurrency/` checks in every interleaving.
//!
//! The VM that loads the library provides the `enif_*` functions. Unit tests run without a VM, so
//! they are built without the boundary, and all code that needs the VM is dead there.
//!
//! Lock order: socket, then [`listener`], relay or [`verb::group`], then the ready list of a
//! pollset. A second socket is locked in two cases only: while it is being made, and when two
//! sockets become a relay; then the one in the lower slot is locked first.

#![cfg_attr(test, allow(dead_code))]

mod kernel;
mod listener;
#[cfg(not(test))]
mod nif;
mod poll;
mod pollset;
mod reactor;
mod relay;
mod socket;
mod term;
mod value;
mod verb;
