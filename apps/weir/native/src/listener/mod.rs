//! Who may come in: the gate that the listening sockets of a listener have in common.
//!
//! [`gate`] has limits and places, `intake` the connections that wait for a process, [`ticket`] what a connection gives
//! back when it is closed. Calling accept(2) and making sockets is the business of a verb. May use `pollset` and what is
//! below it.

pub mod gate;
mod intake;
pub mod ticket;
