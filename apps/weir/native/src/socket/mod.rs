//! One socket as data: its descriptor, its owner, its options, and who waits for it.
//!
//! A socket lives in a slot of the [`table`] under a lock of its own. Here is what changes no more than the socket and its
//! place on a pollset: owners and subscribers ([`owner`]), messages ([`message`]), files ([`file`], [`transfer`]). Reading,
//! writing and closing are verbs. May use `listener` (for the permit of a connection), `pollset` and what is below.

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

/// Where a socket is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// No socket: the slot is vacant, or becomes so when its lock is let go of.
    Free,
    /// Neither listening nor connected yet.
    Open,
    Listening,
    Connecting,
    Connected,
    /// The descriptor is closed and the owner has not called close: what a port without a descriptor is to inet.
    Closed,
}

/// Whether a connection has come to its end, and how. Of a reactor's socket it is noted where that is found, and told in one
/// place: the reactor's next batch. Of another one it is noted where that is found by a process that may not tell the owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    Not,
    /// By the peer, or by a close from outside the reactor.
    Closed,
    Failed(Errno),
    /// The peer does not read, and the send queue has reached its limit.
    SendQueueFull,
}

/// A socket, in its slot of the table, under the slot's lock.
///
/// What a request touches stands together and in front, what is rare is behind a pointer: with ten thousand connections
/// every cache line of this is a miss.
#[repr(C)]
pub struct Socket {
    slot: u32,
    pub generation: u32,
    pub fd: Option<OwnedFd>,
    last_operation: u32,
    pub pollset: u16,
    pub state: State,
    /// The descriptor is in its pollset's epoll. That is done when somebody first has to wait, and once.
    pub registered: bool,
    /// It is on its pollset's ready list.
    pub queued: bool,
    /// The kernel may have input, or a connection, that we have not taken: try.
    pub readable: Readable,
    /// The kernel may take output.
    pub writable: bool,
    /// The peer has closed or the connection failed.
    pub hung_up: bool,
    /// End of input was reached and told: the kernel is not asked again before the active mode changes.
    pub read_closed: bool,
    /// `tcp_closed` was sent to an owner.
    pub close_told: bool,
    /// The poller waits until the owner has taken the messages of the sender before.
    pub unsettled: bool,
    /// `tcp_passive` is to be sent to the owner.
    pub passive_untold: bool,
    /// Messages that the owner was sent, or may have been: a number that says of which ones something is known.
    pub told: u32,
    pub teller: Teller,
    /// A broken pipe is our own doing: our side was shut down behind queued output, or that failed. The inet driver does
    /// not remember a shutdown that succeeded at once, and takes the broken pipe for a reset.
    pub write_shut: bool,
    /// Its news go into the batches of its owner, a reactor, instead of messages.
    pub reactor: bool,
    pub ended: Ended,
    /// A group has given it the one message that it was a member for, of which its reactor is not told yet.
    pub served: bool,
    /// Its reactor has not been told that it was accepted.
    pub unannounced: bool,
    /// A reactor's socket is not read from while its send queue is over the high watermark.
    pub throttled: bool,
    /// The owner is gone, or has waited long enough, and the queue is still being sent, as the inet driver does.
    pub lingering: bool,
    /// The first line of an HTTP message has been taken, and its header fields are next.
    pub in_http_headers: bool,
    /// The last read filled a large buffer: the next goes straight into a binary.
    pub bulk: bool,
    /// The next send or recv on the closed socket says `closed` (or `econnreset`), later ones `enotconn`.
    pub late_send_error: bool,
    pub late_recv_error: bool,
    pub late_econnreset: bool,
    /// The descriptor was opened by somebody else, who also closes it.
    pub prebound: bool,
    /// A panic has left it half done. The next visit closes it; until then it is closed to all.
    pub broken: bool,
    pub options: Options,
    pub owner: Option<LocalPid>,
    /// The module of the socket's term: `{'$inet', Module, Handle}`.
    pub module: Option<Atom>,
    pub input: Option<Box<InputBuffer>>,
    pub receiver: Option<Box<Receiver>>,
    pub output: Option<Box<Output>>,
    /// Who asked to be told when the kernel takes output again.
    pub writability: Option<Box<LocalPid>>,
    /// When the bytes were read to which no reply has been written, if that is measured.
    asked: Option<Nanos>,
    pub statistics: Statistics,
    pub groups: Memberships,
    pub watched: Option<Box<Watched>>,
    pub connector: Option<Box<Waiter>>,
    pub listening: Option<Box<Listening>>,
    /// What a connection gives back to the listener through which it came.
    pub permit: Option<Permit>,
    /// Where the owner runs.
    pub following: Following,
    /// The network namespace that was asked for, as a path.
    pub netns: Option<Box<[u8]>>,
}

/// How the caller of an operation is told that it failed: the reason of `{error, Reason}`.
pub type Reason = Atom;

impl Socket {
    /// A slot without a socket; the next one there will have this generation.
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

    /// Everybody who waits for the answer to an operation.
    pub fn waiters(&self) -> impl Iterator<Item = Waiter> {
        let receiver = self.receiver.iter().map(|receiver| receiver.waiter);
        let connector = self.connector.iter().map(|connector| **connector);
        let acceptors = self.listening.iter().flat_map(|listening| listening.acceptors.iter().map(|one| one.waiter));
        let senders = self.output.iter().flat_map(|output| output.waiting.iter().map(|&(waiter, _)| waiter));
        receiver.chain(connector).chain(acceptors).chain(senders)
    }

    /// Makes the vacant slot a socket around `fd`, owned by `owner`. Fails if that process is dead: then the descriptor
    /// comes back, and the slot stays vacant.
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

    /// Ends the socket, which is closed: the handle names nothing from now on. Those who have it locked keep what is left, a
    /// socket without a descriptor that nobody finds. It has its pollset still: what they note there is passed over.
    pub fn vacate(&mut self) {
        *self = Socket { pollset: self.pollset, ..Socket::vacant(self.slot, self.generation) };
    }

    /// Makes the vacant slot a connection of the reactor that calls, on the reactor's pollset. What watches the pollset
    /// closes it when the reactor dies.
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
        // Nothing is known: the first operation tries, and registers if it has to wait.
        self.readable = Readable::new(self.options.local);
        self.readable.try_again();
        self.writable = true;
        pollset::counters(self.pollset).sockets.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }

    /// Watches `owner`, in place of the process before it. False if it is dead.
    pub fn watch(&mut self, env: Env, owner: &LocalPid) -> bool {
        match &mut self.watched {
            Some(watched) => watched.set_owner(env, owner),
            None => {
                self.watched = Watched::begin(env, self.handle(), owner).map(Box::new);
                self.watched.is_some()
            }
        }
    }

    /// Notes how the connection ended, for the next batch of its reactor or the next visit of its poller.
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

    /// A number for an operation that waits, different from those of other waiting operations on the socket.
    pub fn next_operation(&mut self) -> u32 {
        self.last_operation = self.last_operation.wrapping_add(1);
        self.last_operation
    }

    /// Whether data that comes now has somebody to go to.
    pub fn is_active(&self) -> bool {
        self.options.active != Active::Passive
    }

    /// Makes `pid` the owner, which was sent messages of the socket by `forwarded`. False if it is dead: then the socket keeps
    /// its owner.
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

    /// Tells `reference` to process `pid` when the socket closes. False if that process is dead.
    pub fn subscribe(&mut self, env: Env, pid: LocalPid, reference: Term) -> bool {
        if self.watched.is_none() {
            // A reactor's socket has nobody watched for its own sake.
            let Some(owner) = self.owner else { return false };
            self.watch(env, &owner);
        }
        self.watched.as_mut().is_some_and(|watched| watched.subscribe(env, pid, reference))
    }

    /// Takes back a subscription. False if there is none.
    pub fn unsubscribe(&mut self, env: Env, reference: Term) -> bool {
        self.watched.as_mut().is_some_and(|watched| watched.unsubscribe(env, reference))
    }

    /// Answers a waiting operation of this socket. False if the process is dead.
    pub fn answer(&self, env: Env, waiter: Waiter, result: impl Encoder) -> bool {
        message::answer(env, self.handle(), waiter, result)
    }

    /// Answers everybody who waits to send or to flush.
    pub fn fail_senders(&mut self, env: Env, reason: Reason) {
        self.tell_writable(env);
        transfer::fail(env, self, None);
        if let Some(mut output) = self.output.take() {
            for (waiter, _) in output.waiting.drain(..) {
                self.answer(env, waiter, (atoms::error(), reason));
            }
        }
    }

    /// Tells the process that waits for it that output is taken, or that waiting has no sense any more.
    pub fn tell_writable(&mut self, env: Env) {
        if let Some(pid) = self.writability.take()
            // A reactor has events for that, and hears of the end by another.
            && !(self.reactor && self.owner == Some(*pid))
        {
            message::writable(env, self, *pid);
        }
    }

    /// Takes back a waiting operation. False if it has been answered: the answer is in the mailbox.
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
