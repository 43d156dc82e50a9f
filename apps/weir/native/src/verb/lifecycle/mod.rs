//! How sockets end and where they go: closing, and moving to a reactor, another pollset or a relay.
//!
//! What reads or writes may find that the connection has ended, so `closing` uses nothing that does. [`moving`] stands
//! above groups, which give a socket that moves the messages that it would miss.

mod closing;
pub mod moving;
