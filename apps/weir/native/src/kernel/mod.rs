//! System calls, safe: epoll, what ends a wait, socket options.

pub mod epoll;
pub mod scratch;
pub mod sockopt;
pub mod waiter;
