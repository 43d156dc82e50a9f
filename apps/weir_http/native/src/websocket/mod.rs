//! WebSocket (RFC 6455): frames ([`frame`], [`decoder`], with [`mask`] and [`text`]), compressed
//! messages ([`deflate`], RFC 7692), and the key of a handshake ([`handshake`]). The state of a
//! connection is a value that the caller keeps.

pub mod decoder;
pub mod deflate;
pub mod frame;
pub mod handshake;
pub mod mask;
pub mod text;
