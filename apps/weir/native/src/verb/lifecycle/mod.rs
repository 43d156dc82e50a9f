//! Closing sockets, and moving them to a reactor, another pollset or a relay.
//!
//! Reading and writing may find that the connection has ended, so `closing` uses neither.
//! [`moving`] is above groups, because a socket that moves gets the messages that it would miss.

mod closing;
pub mod moving;
