//! Runs a few threads in every interleaving on the socket table, ready lists, groups, listeners
//! and places. Lost wake-ups, deadlocks and failed assertions are errors.
#![cfg(loom)]

mod group;
mod listener;
mod places;
mod poller;
mod table;

use loom::sync::Arc;

use weir_concurrency::handle::Handle;
use weir_concurrency::slots::Slots;
use weir_concurrency::socket::Socket;
use weir_concurrency::sync::Mutex;
use weir_concurrency::vacancies::Common;

/// Two chunks of one slot each, so that the second chunk is made during lookups.
type Table = Slots<Socket, 2, 1>;

fn table() -> Arc<Table> {
    Arc::new(Slots::new(Mutex::new(Common::new())))
}

fn open(table: &Table) -> Option<Handle> {
    table.allocate().map(|mut socket| socket.open())
}
