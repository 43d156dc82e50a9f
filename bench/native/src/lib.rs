//! The yardsticks of Weir's measurements.
//!
//! [`reference`] holds the servers that mark the limit: one thread, edge-triggered epoll, no work that the job does not
//! ask for. [`drive`] holds the driver that loads them, or any other server, and reports rates, latency
//! percentiles and the server's CPU time. Both stand on the same few pieces: a [`poller`], a table of [`connections`],
//! a [`listener`] and a [`stop`] signal.

pub mod alarm;
pub mod clock;
pub mod command_line;
pub mod connections;
pub mod drive;
pub mod limits;
pub mod listener;
pub mod poller;
pub mod reference;
pub mod socket;
pub mod stop;
