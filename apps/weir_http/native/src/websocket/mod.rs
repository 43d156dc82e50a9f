//! WebSocket (RFC 6455): frames from bytes and back ([`frame`], [`decoder`], with [`mask`] and [`text`]), compressed messages
//! ([`deflate`], RFC 7692), and the key of a handshake ([`handshake`]). Nothing here keeps a connection: what a connection
//! has begun is a value that the caller keeps.

pub mod decoder;
pub mod deflate;
pub mod frame;
pub mod handshake;
pub mod mask;
pub mod text;
