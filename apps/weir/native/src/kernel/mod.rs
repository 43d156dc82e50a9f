//! System calls, safe: epoll, what ends a wait, socket options.

pub mod epoll;
pub mod sockopt;
pub mod waiter;
