//! One socket as data: its descriptor, owner, options and waiting processes.
//!
//! A socket lives in a slot of the [`table`], under a lock of its own. The functions here change
//! only the socket and its place on a pollset: owners and subscribers ([`owner`]), messages
//! ([`message`]), files ([`file`], [`transfer`]). Reading, writing and closing are verbs. May use
//! `listener` (for the permit of a connection), `pollset` and what is below.

pub mod file;
pub mod following;
mod listening;
mod measuring;
pub mod message;
pub mod owner;
mod polling;
pub mod table;
pub mod telling;
pub mod transfer;
mod waiting;

use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustler::{Atom, Encoder, Env, LocalPid, Term};

pub use self::listening::{Acceptor, Listening};
pub use self::waiting::{Fetched, Output, Queued, Receiver, SendWait, Waiter};
use crate::kernel::clock::Nanos;
use crate::listener::permit::Permit;
use crate::pollset;
use crate::socket::following::Following;
use crate::socket::owner::Watched;
use crate::socket::telling::Teller;
use crate::term::atoms;
use crate::value::active::Active;
use crate::value::handle::Handle;
use crate::value::input_buffer::InputBuffer;
use crate::value::membership::Memberships;
use crate::value::options::Options;
use crate::value::readable::Readable;
use crate::value::statistics::Statistics;

/// The state of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// No socket: the slot is vacant, or becomes vacant when it is unlocked.
    Free,
    /// Neither listening nor connected yet.
    Open,
    Listening,
    Connecting,
    Connected,
    /// The descriptor is closed, but the owner has not called close, like a port of the inet
    /// driver without a descriptor.
    Closed,
}

/// Whether and how a connection has ended. For a reactor's socket, it is set where the end is
/// found, and reported with the reactor's next batch. For other sockets, it is set when a process
/// finds the end that may not send messages to the owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    Not,
    /// Closed by the peer, or from outside the reactor.
    Closed,
    Failed(Errno),
    /// The peer does not read, and the send queue has reached its limit.
    SendQueueFull,
}

/// A socket in its slot of the table, under the slot's lock.
///
/// Fields that a request uses are together in front; rare ones are behind a pointer. With ten
/// thousand connections every cache line of this is a cache miss.
#[repr(C)]
pub struct Socket {
    slot: u32,
    pub generation: u32,
    pub fd: Option<OwnedFd>,
    last_operation: u32,
    pub pollset: u16,
    pub state: State,
    /// The descriptor is in the pollset's epoll instance. It is added once, when an operation
    /// first has to wait.
    pub registered: bool,
    /// It is on its pollset's ready list.
    pub queued: bool,
    /// There may be input or a connection to accept: try.
    pub readable: Readable,
    /// The kernel may take output.
    pub writable: bool,
    /// The peer has closed, or the connection has failed.
    pub hung_up: bool,
    /// The end of input was reached and reported. The socket is not read again until its active
    /// mode changes.
    pub read_closed: bool,
    /// `tcp_closed` was sent to an owner.
    pub close_told: bool,
    /// The poller waits until the owner has taken the messages of the previous sender.
    pub unsettled: bool,
    /// `tcp_passive` must still be sent to the owner.
    pub passive_untold: bool,
    /// Number of messages that the owner was sent or may have been sent; it identifies a state of
    /// the owner's queue.
    pub told: u32,
    pub teller: Teller,
    /// EPIPE is due to our own shutdown, which came after queued output, or which failed. The inet
    /// driver does not remember a shutdown that succeeded at once, and reports EPIPE as a reset.
    pub write_shut: bool,
    /// The owner is a reactor, which gets batches of events instead of messages.
    pub reactor: bool,
    pub ended: Ended,
    /// The group sent the one message of a single-message membership; the owner has not been told
    /// yet.
    pub served: bool,
    /// The reactor has not been told yet that it was accepted.
    pub unannounced: bool,
    /// A reactor's socket is not read while its send queue is above the high watermark.
    pub throttled: bool,
    /// The owner is gone, or has waited long enough, and queued output is still being sent, as the
    /// inet driver does.
    pub lingering: bool,
    /// The first line of an HTTP message has been taken; header fields follow.
    pub in_http_headers: bool,
    /// The last read filled a large buffer, so the next goes straight into a binary.
    pub bulk: bool,
    /// The next send or recv on the closed socket returns `closed` (or `econnreset`), later ones
    /// `enotconn`.
    pub late_send_error: bool,
    pub late_recv_error: bool,
    pub late_econnreset: bool,
    /// The descriptor was opened elsewhere, and is closed there.
    pub prebound: bool,
    /// A panic has left it in an inconsistent state. It counts as closed, and the next visit
    /// closes it.
    pub broken: bool,
    pub options: Options,
    pub owner: Option<LocalPid>,
    /// The module of the socket's term: `{'$inet', Module, Handle}`.
    pub module: Option<Atom>,
    pub input: Option<Box<InputBuffer>>,
    pub receiver: Option<Box<Receiver>>,
    pub output: Option<Box<Output>>,
    /// A process that asked to be notified when the kernel takes output again.
    pub writability: Option<Box<LocalPid>>,
    /// When the last bytes without a reply were read, if reply times are measured.
    asked: Option<Nanos>,
    pub statistics: Statistics,
    pub groups: Memberships,
    pub watched: Option<Box<Watched>>,
    pub connector: Option<Box<Waiter>>,
    pub listening: Option<Box<Listening>>,
    /// The permit of the listener through which the connection came.
    pub permit: Option<Permit>,
    /// Tracks the scheduler of the owner.
    pub following: Following,
    /// The requested network namespace, as a path.
    pub netns: Option<Box<[u8]>>,
}

/// The reason in `{error, Reason}`.
pub type Reason = Atom;

impl Socket {
    /// Returns a vacant slot whose next socket has this generation.
    pub fn vacant(slot: u32, generation: u32) -> Socket {
        Socket {
            slot,
            generation,
            state: State::Free,
            pollset: 0,
            registered: false,
            queued: false,
            readable: Readable::default(),
            writable: false,
            hung_up: false,
            read_closed: false,
            close_told: false,
            unsettled: false,
            passive_untold: false,
            told: 0,
            teller: Teller::Nobody,
            write_shut: false,
            reactor: false,
            ended: Ended::Not,
            served: false,
            unannounced: false,
            throttled: false,
            lingering: false,
            in_http_headers: false,
            bulk: false,
            late_send_error: false,
            late_recv_error: false,
            late_econnreset: false,
            prebound: false,
            broken: false,
            last_operation: 0,
            fd: None,
            module: None,
            owner: None,
            options: Options::default(),
            input: None,
            receiver: None,
            output: None,
            writability: None,
            connector: None,
            watched: None,
            listening: None,
            groups: Memberships::default(),
            permit: None,
            following: Following::default(),
            netns: None,
            asked: None,
            statistics: Statistics::default(),
        }
    }

    /// All processes that wait for the answer to an operation.
    pub fn waiters(&self) -> impl Iterator<Item = Waiter> {
        let receiver = self.receiver.iter().map(|receiver| receiver.waiter);
        let connector = self.connector.iter().map(|connector| **connector);
        let acceptors = self.listening.iter().flat_map(|listening| listening.acceptors.iter().map(|one| one.waiter));
        let senders = self.output.iter().flat_map(|output| output.waiting.iter().map(|&(waiter, _)| waiter));
        receiver.chain(connector).chain(acceptors).chain(senders)
    }

    /// Makes the vacant slot a socket for `fd`, owned by `owner`. If that process is dead, returns
    /// the descriptor, and the slot stays vacant.
    pub fn open(
        &mut self,
        env: Env,
        fd: OwnedFd,
        state: State,
        (module, pollset, options): (Atom, u16, Options),
        owner: LocalPid,
    ) -> Result<Handle, OwnedFd> {
        let handle = self.handle();
        let Some(watched) = Watched::begin(env, handle, &owner) else {
            return Err(fd);
        };
        self.watched = Some(Box::new(watched));
        self.occupy(fd, state, (module, pollset, options), owner);
        Ok(handle)
    }

    /// Ends the closed socket: its handle becomes invalid. Callers that hold the lock still have a
    /// socket without a descriptor, which no lookup finds. It keeps its pollset, so that they can
    /// push it, which has no effect.
    pub fn vacate(&mut self) {
        *self = Socket { pollset: self.pollset, ..Socket::vacant(self.slot, self.generation) };
    }

    /// Makes the vacant slot a connection of the calling reactor, on the reactor's pollset. It has
    /// no monitor; the pollset's monitor closes it when the reactor dies.
    pub fn open_in_reactor(&mut self, fd: OwnedFd, about: (Atom, u16, Options), owner: LocalPid) -> Handle {
        self.reactor = true;
        self.occupy(fd, State::Connected, about, owner);
        self.options.active = Active::Always;
        self.handle()
    }

    fn occupy(&mut self, fd: OwnedFd, state: State, (module, pollset, options): (Atom, u16, Options), owner: LocalPid) {
        self.state = state;
        self.pollset = pollset::online::pollset(pollset);
        self.module = Some(module);
        self.options = options;
        self.owner = Some(owner);
        self.fd = Some(fd);
        // Nothing is known yet: the first operation tries, and registers if it has to wait.
        self.readable = Readable::new(self.options.local);
        self.readable.try_again();
        self.writable = true;
        pollset::counters(self.pollset).sockets.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }

    /// Monitors `owner` in place of the previous owner. False if it is dead.
    pub fn watch(&mut self, env: Env, owner: &LocalPid) -> bool {
        match &mut self.watched {
            Some(watched) => watched.set_owner(env, owner),
            None => {
                self.watched = Watched::begin(env, self.handle(), owner).map(Box::new);
                self.watched.is_some()
            }
        }
    }

    /// Records how the connection ended, for the reactor's next batch or the poller's next visit.
    pub fn end(&mut self, env: Env, ended: Ended) {
        if self.ended == Ended::Not {
            self.ended = ended;
        }
        self.enqueue(env);
    }

    /// The socket's handle.
    pub fn handle(&self) -> Handle {
        Handle::new(self.slot, self.generation)
    }

    /// Returns a number for a waiting operation, unique among those on the socket.
    pub fn next_operation(&mut self) -> u32 {
        self.last_operation = self.last_operation.wrapping_add(1);
        self.last_operation
    }

    /// Whether incoming data is delivered as messages.
    pub fn is_active(&self) -> bool {
        self.options.active != Active::Passive
    }

    /// Makes `pid` the owner; `forwarded` is the process that forwarded messages of the socket to
    /// it. False if `pid` is dead; then the owner stays.
    pub fn set_owner(&mut self, env: Env, pid: LocalPid, forwarded: Option<LocalPid>) -> bool {
        let watched = self.watched.as_mut();
        let set = watched.is_some_and(|watched| watched.set_owner(env, &pid));
        if set {
            self.owner = Some(pid);
            self.following.begin();
            self.begin_telling(env, forwarded);
        }
        set
    }

    /// Sends `reference` to `pid` when the socket closes. False if that process is dead.
    pub fn subscribe(&mut self, env: Env, pid: LocalPid, reference: Term) -> bool {
        if self.watched.is_none() {
            // A reactor's socket has no monitor of its own yet.
            let Some(owner) = self.owner else { return false };
            self.watch(env, &owner);
        }
        self.watched.as_mut().is_some_and(|watched| watched.subscribe(env, pid, reference))
    }

    /// Removes a subscription. False if there is none.
    pub fn unsubscribe(&mut self, env: Env, reference: Term) -> bool {
        self.watched.as_mut().is_some_and(|watched| watched.unsubscribe(env, reference))
    }

    /// Answers a waiting operation. False if the process is dead.
    pub fn answer(&self, env: Env, waiter: Waiter, result: impl Encoder) -> bool {
        message::answer(env, self.handle(), waiter, result)
    }

    /// Answers all processes that wait to send or to flush.
    pub fn fail_senders(&mut self, env: Env, reason: Reason) {
        self.tell_writable(env);
        transfer::fail(env, self, None);
        if let Some(mut output) = self.output.take() {
            for (waiter, _) in output.waiting.drain(..) {
                self.answer(env, waiter, (atoms::error(), reason));
            }
        }
    }

    /// Notifies the process that waits for it that output is taken, or that waiting is pointless.
    pub fn tell_writable(&mut self, env: Env) {
        if let Some(pid) = self.writability.take()
            // A reactor gets an event instead, also when the connection ends.
            && !(self.reactor && self.owner == Some(*pid))
        {
            message::writable(env, self, *pid);
        }
    }

    /// Cancels a waiting operation. False if it has been answered already: the answer is in the
    /// mailbox.
    pub fn cancel(&mut self, env: Env, operation: u32) -> bool {
        let is = |waiter: &Waiter| waiter.operation == operation;
        if self.receiver.as_ref().is_some_and(|receiver| is(&receiver.waiter)) {
            self.receiver = None;
            return true;
        }
        if self.connector.as_deref().is_some_and(is) {
            self.connector = None;
            return true;
        }
        if let Some(listening) = &mut self.listening
            && let Some(at) = listening.acceptors.iter().position(|acceptor| is(&acceptor.waiter))
        {
            listening.acceptors.remove(at);
            return true;
        }
        if let Some(output) = &mut self.output
            && let Some(at) = output.waiting.iter().position(|(waiter, _)| is(waiter))
        {
            output.waiting.remove(at);
            return true;
        }
        transfer::cancel(env, self, operation)
    }
}
