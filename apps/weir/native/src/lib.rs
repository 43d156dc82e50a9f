//! The native engine of Weir: pollsets, sockets, queues and counters.
//!
//! Erlang's side of the boundary is the module `weir_nif`; ours is [`nif`]. Below it, a socket lives in a slot of the
//! [`table`] under a lock of its own; a [`pollset`] names the sockets that are ready; [`input`] and [`output`] move
//! bytes. What can be a value without the VM and the kernel is one, with its tests beside it: [`handle`], [`active`],
//! [`packet`], [`http`], [`admission`], [`send_queue`], [`input_buffer`], [`counters`], [`statistics`], [`work`]. What
//! schedulers share is [`slots`], behind the table, and [`ready`], behind a pollset: both are tried in every interleaving by
//! `concurrency/`.
//!
//! Above the sockets stand a [`gate`] for the connections of a listener, a [`reactor`] for the process that serves many of
//! them, a [`relay`] for two and a [`group`] for one message to many.
//!
//! The VM's functions come from the VM that loads the library. Unit tests have none: they are built without the
//! boundary, so that whatever needs the VM is dead code there.
//!
//! Locks are taken in the order socket, [`gate`], relay or [`group`], ready list of a pollset. A second socket is locked
//! while it is being made, and behind that of the lower slot where two become a relay.

#![cfg_attr(test, allow(dead_code))]

mod accept;
mod active;
mod address;
mod admission;
mod atoms;
mod connect;
mod counters;
mod data;
mod epoll;
mod errno;
mod gate;
mod group;
mod handle;
mod held;
mod http;
mod input;
mod input_buffer;
mod kernel_options;
mod message;
#[cfg(not(test))]
mod nif;
mod open;
mod options;
mod output;
mod owner;
mod packet;
mod pollset;
mod reactor;
mod ready;
mod relay;
mod send_queue;
mod sendfile;
mod slots;
mod socket;
mod sockopt;
mod statistics;
mod sync;
mod table;
mod waiter;
mod work;

#[cfg(not(test))]
rustler::init!("weir_nif");
