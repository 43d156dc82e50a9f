//! How sockets end and where they go: closing, and moving to a reactor, another pollset or a relay.

mod closing;
pub mod moving;
