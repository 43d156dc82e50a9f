//! The load driver and the reference servers of Weir's benchmarks.
//!
//! [`reference`] has servers that show the limit: one thread, edge-triggered epoll, and only the
//! work that the job requires. [`drive`] has the driver, which loads these or other servers and
//! reports rates, latency percentiles and the server's CPU time. Both use a [`poller`], a table of
//! [`connections`], a [`listener`] and a [`stop`] signal.

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
