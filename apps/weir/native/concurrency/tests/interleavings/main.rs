//! Every interleaving of a few threads on the socket table, a ready list and the members of a group. A lost wake-up, a
//! deadlock and a broken assertion all fail.
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

/// Two chunks of one slot each: the second chunk is made while others look things up.
type Table = Slots<Socket, 2, 1>;

fn table() -> Arc<Table> {
    Arc::new(Slots::new(Mutex::new(Common::new())))
}

fn open(table: &Table) -> Option<Handle> {
    table.allocate().map(|mut socket| socket.open())
}
