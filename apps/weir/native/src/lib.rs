//! The native engine of Weir: pollsets, sockets, queues and counters.
//!
//! Each folder is a layer, and a module uses its own layer and those below it only; the list `layers` beside this folder has
//! their order, and `scripts/check-layers` holds us to it. From the top:
//!
//! - [`nif`], the boundary, whose other side is the module `weir_nif`: it decodes, finds, locks, calls and encodes;
//! - [`poll`], the dispatch: what is ready is served;
//! - [`reactor`] and [`relay`]: connections without a process for each;
//! - [`verb`]: what happens to sockets;
//! - [`socket`]: one socket as data, and the table of all;
//! - [`listener`]: who may come in;
//! - [`pollset`]: what is waited on, by number;
//! - [`term`] and [`kernel`]: bytes as terms, and system calls;
//! - [`value`]: what needs neither the VM nor the kernel, with its tests beside it. What schedulers share is there as well,
//!   and tried in every interleaving by `concurrency/`.
//!
//! The VM's functions come from the VM that loads the library. Unit tests have none: they are built without the
//! boundary, so that all code that needs the VM is dead there.
//!
//! Locks are taken in the order socket, [`listener`], relay or [`verb::group`], ready list of a pollset. A second socket is locked
//! while it is being made, and behind that of the lower slot where two become a relay.

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
