//! The native engine of Weir: pollsets, sockets, queues and counters.
//!
//! Erlang's side of the boundary is the module `weir_nif`; ours is [`nif`]. Below it, a socket lives in a slot of the
//! [`socket::table`] under a lock of its own; a [`pollset`] names the sockets that are ready; [`verb::input`] and [`verb::output`] move
//! bytes. What can be a value without the VM and the kernel is one, with its tests beside it: [`value::handle`], [`value::active`],
//! [`value::packet`], [`value::http`], [`value::admission`], [`value::send_queue`], [`value::input_buffer`], [`value::counters`], [`value::statistics`], [`value::work`]. What
//! schedulers share is [`value::slots`], behind the table, and [`value::ready`], behind a pollset: both are tried in every interleaving by
//! `concurrency/`.
//!
//! Above the sockets stand a [`listener::gate`] for the connections of a listener, a [`reactor`] for the process that serves many of
//! them, a [`relay`] for two and a [`verb::group`] for one message to many.
//!
//! The VM's functions come from the VM that loads the library. Unit tests have none: they are built without the
//! boundary, so that whatever needs the VM is dead code there.
//!
//! Locks are taken in the order socket, [`listener::gate`], relay or [`verb::group`], ready list of a pollset. A second socket is locked
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

#[cfg(not(test))]
rustler::init!("weir_nif");
