//! One socket: its descriptor, its owner, its options, what waits for it, and how it ends.

use std::collections::VecDeque;
use std::os::fd::{AsFd, IntoRawFd, OwnedFd};
use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::Shutdown;
use rustler::{Atom, Encoder, Env, LocalPid, Monitor, Term};

use crate::active::Active;
use crate::gate::{Gate, Ticket};
use crate::group::Memberships;
use crate::handle::{Handle, Target};
use crate::held::Held;
use crate::input_buffer::InputBuffer;
use crate::owner::Watched;
use crate::packet::{Limits, Packet};
use crate::send_queue::SendQueue;
use crate::sendfile::{self, Transfer};
use crate::statistics::Statistics;
use crate::{atoms, errno, group, message, pollset, sockopt, table};

/// Where a socket is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// No socket: the slot is vacant.
    Free,
    /// Neither listening nor connected yet.
    Open,
    Listening,
    Connecting,
    Connected,
    /// The descriptor is closed and the owner has not called close: what a port without a descriptor is to inet.
    Closed,
}

/// Whether the connection of a reactor's socket has come to its end, and how. It is noted where that is found, and told
/// in one place: the reactor's next batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    Not,
    /// By the peer, or by a close from outside the reactor.
    Closed,
    Failed(Errno),
    /// The peer does not read, and the send queue has reached its limit.
    SendQueueFull,
}

/// SO_LINGER: what a close does with data that was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Linger {
    /// The kernel sends it in the background.
    Off,
    /// `{linger, {true, Seconds}}`: close waits for it.
    Wait,
    /// `{linger, {true, 0}}`: it is thrown away, and the connection is reset.
    Reset,
}

impl From<libc::linger> for Linger {
    fn from(linger: libc::linger) -> Linger {
        match (linger.l_onoff, linger.l_linger) {
            (0, _) => Linger::Off,
            (_, 0) => Linger::Reset,
            _ => Linger::Wait,
        }
    }
}

/// What the user sets, and what an accepted socket inherits from its listener.
#[derive(Clone, Copy)]
pub struct Options {
    pub active: Active,
    /// Data is delivered as a list of bytes instead of a binary.
    pub list: bool,
    pub exit_on_close: bool,
    pub show_econnreset: bool,
    pub send_timeout_close: bool,
    pub linger: Linger,
    /// Milliseconds; none is infinity.
    pub send_timeout: Option<u32>,
    pub packet: Packet,
    /// The most bytes of a packet's body; zero is no limit.
    pub packet_size: u32,
    /// The last byte of a line.
    pub line_delimiter: u8,
    /// Data is delivered as `{Socket, {data, List}}`, as ports do.
    pub deliver_port: bool,
    /// So many bytes of a binary are delivered as a list in front of the rest.
    pub header: u32,
    /// The most bytes of one message or one `recv(S, 0)`. It grows with `recbuf` unless it was set.
    pub buffer: u32,
    pub buffer_set: bool,
    pub high_watermark: u32,
    pub low_watermark: u32,
    /// Limits of a port's message queue: kept for whoever asks, as there is no such queue.
    pub high_msgq_watermark: u32,
    pub low_msgq_watermark: u32,
    /// What is sent is left to the next poll, and goes out together with what comes until then.
    pub delay_send: bool,
    /// Kept for getopts; there is no debug output.
    pub debug: bool,
    /// Kept for getopts: what is read ahead of a packet is never lost.
    pub read_ahead: bool,
}

/// `buffer` where nobody sets it: large reads for busy connections; an idle one holds no buffer at all.
const DEFAULT_BUFFER: u32 = 64 * 1024;

/// The watermarks of the inet driver, for the send queue and for the message queue of a port.
const DEFAULT_HIGH_WATERMARK: u32 = 8 * 1024;
const DEFAULT_LOW_WATERMARK: u32 = 4 * 1024;

impl Default for Options {
    fn default() -> Options {
        Options {
            active: Active::Always,
            list: true,
            exit_on_close: true,
            show_econnreset: false,
            send_timeout_close: false,
            linger: Linger::Off,
            send_timeout: None,
            packet: Packet::Raw,
            packet_size: 0,
            line_delimiter: b'\n',
            deliver_port: false,
            header: 0,
            buffer: DEFAULT_BUFFER,
            buffer_set: false,
            high_watermark: DEFAULT_HIGH_WATERMARK,
            low_watermark: DEFAULT_LOW_WATERMARK,
            high_msgq_watermark: DEFAULT_HIGH_WATERMARK,
            low_msgq_watermark: DEFAULT_LOW_WATERMARK,
            delay_send: false,
            debug: false,
            read_ahead: true,
        }
    }
}

impl Options {
    /// What bounds a packet.
    pub fn limits(&self) -> Limits {
        Limits { packet_size: self.packet_size as usize, buffer: self.buffer as usize, delimiter: self.line_delimiter }
    }
}

/// A process that waits for the answer to an operation.
#[derive(Clone, Copy)]
pub struct Waiter {
    pub pid: LocalPid,
    pub operation: u32,
}

/// A process in `recv`, for exactly `length` bytes, or for any if that is zero.
pub struct Receiver {
    pub waiter: Waiter,
    pub length: usize,
}

/// A process in `accept`, and the pollset of the scheduler that it called from.
pub struct Acceptor {
    pub waiter: Waiter,
    pub pollset: u16,
}

/// What a process waits for at the send queue.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum SendWait {
    /// Its data went over the high watermark: it goes on below the low one.
    Accepted,
    /// The queue was full and its data was not taken: it sends again below the low watermark.
    Refused,
    /// It closes the socket when the queue is empty.
    Flush,
}

/// What the kernel has not taken yet, and who waits for it. A socket that keeps up has none.
pub struct Output {
    pub queue: SendQueue<Held>,
    pub waiting: Vec<(Waiter, SendWait)>,
    /// A sender has gone over the high watermark, and nobody else's data is taken before the queue is down at the low
    /// one: what bounds the memory.
    pub full: bool,
    /// Somebody closes the socket when the queue is empty: nothing is added to it.
    pub closing: bool,
    /// A shutdown that comes after the last queued byte.
    pub shutdown: Option<Shutdown>,
    /// A file that is being sent: the queue behind it waits.
    pub transfer: Option<Box<Transfer>>,
}

/// What only a listening socket has.
#[derive(Default)]
pub struct Listener {
    /// Processes in `accept`, in the order in which they came.
    pub acceptors: VecDeque<Acceptor>,
    /// Kernel options that were set while listening: connections that were in the backlog already do not have them.
    pub late_options: Vec<(libc::c_int, libc::c_int, libc::c_int)>,
    /// A connection that was accepted for a process that died at that moment: the next accept gets it.
    pub orphan: Option<OwnedFd>,
    /// Connections go through this gate, to one of its intakes; or else to the reactor.
    pub gate: Option<(Arc<Gate>, Option<usize>)>,
    /// The reactor that takes the connections on its own pollset.
    pub reactor: Option<LocalPid>,
}

impl Listener {
    /// Has connections take a kernel option when they are accepted.
    pub fn set_late(&mut self, level: libc::c_int, name: libc::c_int, value: libc::c_int) {
        self.late_options.retain(|&(l, n, _)| (l, n) != (level, name));
        self.late_options.push((level, name, value));
    }
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
    registered: bool,
    /// It is on its pollset's ready list.
    pub queued: bool,
    /// The kernel may have input, or a connection, that we have not taken: try.
    pub readable: bool,
    /// The kernel may take output.
    pub writable: bool,
    /// The peer has closed or the connection failed: a short read is not the last word.
    pub hung_up: bool,
    /// End of input was reached and told: the kernel is not asked again before the active mode changes.
    pub read_closed: bool,
    /// `tcp_closed` was sent to an owner.
    pub close_told: bool,
    /// A broken pipe is our own doing: our side was shut down behind queued output, or that failed. The inet driver does
    /// not remember a shutdown that succeeded at once, and takes the broken pipe for a reset.
    pub write_shut: bool,
    /// Its news go into the batches of its owner, a reactor, instead of messages.
    pub reactor: bool,
    pub ended: Ended,
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
    pub options: Options,
    pub owner: Option<LocalPid>,
    /// The module of the socket's term: `{'$inet', Module, Handle}`.
    pub module: Option<Atom>,
    pub input: Option<Box<InputBuffer>>,
    pub receiver: Option<Box<Receiver>>,
    pub output: Option<Box<Output>>,
    /// Who asked to be told when the kernel takes output again.
    pub writability: Option<Box<LocalPid>>,
    pub statistics: Statistics,
    pub groups: Memberships,
    watched: Option<Box<Watched>>,
    pub connector: Option<Box<Waiter>>,
    pub listener: Option<Box<Listener>>,
    /// The place that the connection has at the gate through which it came.
    pub ticket: Option<Ticket>,
    /// The network namespace that was asked for, as a path.
    pub netns: Option<Box<[u8]>>,
}

/// What a socket has given away.
pub struct Surrendered {
    pub fd: OwnedFd,
    /// The descriptor was opened by somebody else, who also closes it.
    pub borrowed: bool,
    /// What was read and not taken by anybody.
    pub input: InputBuffer,
    /// What the kernel has not taken yet.
    pub queued: SendQueue<Held>,
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
            readable: false,
            writable: false,
            hung_up: false,
            read_closed: false,
            close_told: false,
            write_shut: false,
            reactor: false,
            ended: Ended::Not,
            throttled: false,
            lingering: false,
            in_http_headers: false,
            bulk: false,
            late_send_error: false,
            late_recv_error: false,
            late_econnreset: false,
            prebound: false,
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
            listener: None,
            groups: Memberships::default(),
            ticket: None,
            netns: None,
            statistics: Statistics::default(),
        }
    }

    /// Makes the vacant slot a socket around `fd`, owned by `owner`. Fails if that process is dead: then the descriptor
    /// comes back and the slot is vacant again.
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
            table::vacate(self);
            return Err(fd);
        };
        self.watched = Some(Box::new(watched));
        self.occupy(fd, state, (module, pollset, options), owner);
        Ok(handle)
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
        self.pollset = pollset;
        self.module = Some(module);
        self.options = options;
        self.owner = Some(owner);
        self.fd = Some(fd);
        // Nothing is known: the first operation tries, and registers if it has to wait.
        self.readable = true;
        self.writable = true;
        pollset::counters(self.pollset).sockets.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }

    /// Makes the socket one of the reactor that calls, whose socket it is already, on the reactor's pollset.
    pub fn join_reactor(&mut self, env: Env, pollset: u16) -> rustix::io::Result<()> {
        self.move_to(env, pollset)?;
        if self.watched.as_ref().is_some_and(|watched| watched.subscribers.is_empty()) {
            self.watched = None;
        }
        if let Some(output) = &mut self.output {
            // A reactor does not wait at the queue.
            output.full = false;
        }
        self.reactor = true;
        self.options.active = Active::Always;
        self.enqueue(env);
        Ok(())
    }

    /// Makes a reactor's socket an ordinary, passive one of `owner` on another pollset. False if that process is dead.
    pub fn leave_reactor(&mut self, env: Env, owner: LocalPid, pollset: u16) -> rustix::io::Result<bool> {
        if !self.watch(env, &owner) {
            return Ok(false);
        }
        self.owner = Some(owner);
        self.reactor = false;
        self.throttled = false;
        self.options.active = Active::Passive;
        if std::mem::replace(&mut self.ended, Ended::Not) != Ended::Not {
            // The kernel says it again.
            self.readable = true;
        }
        self.move_to(env, pollset)?;
        Ok(true)
    }

    /// Watches `owner`, whoever was watched before. False if it is dead.
    fn watch(&mut self, env: Env, owner: &LocalPid) -> bool {
        match &mut self.watched {
            Some(watched) => watched.set_owner(env, owner),
            None => {
                self.watched = Watched::begin(env, self.handle(), owner).map(Box::new);
                self.watched.is_some()
            }
        }
    }

    /// Notes how the connection of a reactor's socket ended, for its next batch.
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

    /// Makes sure that the pollset hears of the socket from now on.
    pub fn register(&mut self) -> rustix::io::Result<()> {
        if self.registered {
            return Ok(());
        }
        if let Some(fd) = &self.fd {
            pollset::epoll(self.pollset).add(fd.as_fd(), Target::Socket(self.handle()))?;
            self.registered = true;
        }
        Ok(())
    }

    /// Puts the socket on its pollset's ready list, to be visited at the next poll.
    pub fn enqueue(&mut self, env: Env) {
        if !self.queued {
            self.queued = true;
            pollset::push_ready(env, self.pollset, Target::Socket(self.handle()));
        }
    }

    /// Takes the socket to another pollset. What was ready stays ready.
    pub fn move_to(&mut self, env: Env, target: u16) -> rustix::io::Result<()> {
        use std::sync::atomic::Ordering::Relaxed;
        if target == self.pollset {
            return Ok(());
        }
        if self.registered
            && let Some(fd) = &self.fd
        {
            pollset::epoll(self.pollset).delete(fd.as_fd())?;
        }
        let was_registered = std::mem::replace(&mut self.registered, false);
        let (from, to) = (pollset::counters(self.pollset), pollset::counters(target));
        from.sockets.fetch_sub(1, Relaxed);
        from.moved_out.fetch_add(1, Relaxed);
        to.sockets.fetch_add(1, Relaxed);
        to.moved_in.fetch_add(1, Relaxed);
        let from_pollset = std::mem::replace(&mut self.pollset, target);
        if let Some((gate, _)) = self.listener.as_ref().and_then(|listener| listener.gate.as_ref()) {
            gate.listening_moved(self.handle(), target);
        }
        // The old list still names the socket; that visit is a spurious one.
        self.queued = false;
        self.enqueue(env);
        if !self.groups.is_empty() {
            group::moved(env, self, from_pollset);
        }
        // Registration reports anew whatever is ready.
        if was_registered { self.register() } else { Ok(()) }
    }

    /// Whether the socket can become one side of a relay of `pid`; the reason if not.
    pub fn can_surrender(&self, pid: LocalPid) -> Result<(), Reason> {
        if self.lingering {
            return Err(atoms::closed());
        }
        if self.owner != Some(pid) {
            return Err(atoms::not_owner());
        }
        if self.state != State::Connected || self.fd.is_none() {
            return Err(atoms::enotconn());
        }
        match &self.output {
            Some(output) if output.closing => Err(atoms::closed()),
            Some(output) if output.transfer.is_some() => Err(atoms::ebusy()),
            Some(output) if output.shutdown.is_some() => Err(atoms::epipe()),
            _ => Ok(()),
        }
    }

    /// Has a pollset name another target for the descriptor; [`take_back`](Self::take_back) undoes it.
    pub fn lend(&self, pollset: u16, target: Target) -> rustix::io::Result<()> {
        let Some(fd) = &self.fd else { return Err(Errno::BADF) };
        let epoll = pollset::epoll(pollset);
        match self.registered && self.pollset == pollset {
            true => epoll.rename(fd.as_fd(), target),
            false => epoll.add(fd.as_fd(), target),
        }
    }

    /// Undoes [`lend`](Self::lend).
    pub fn take_back(&self, pollset: u16) {
        let Some(fd) = &self.fd else { return };
        let epoll = pollset::epoll(pollset);
        // What was registered can be renamed and taken out.
        let _ = match self.registered && self.pollset == pollset {
            true => epoll.rename(fd.as_fd(), Target::Socket(self.handle())),
            false => epoll.delete(fd.as_fd()),
        };
    }

    /// Gives the descriptor away that was lent to `pollset`, with what has been read and what is queued, and closes the
    /// socket to everybody. Nothing is given where there is no descriptor.
    pub fn surrender(&mut self, env: Env, pollset: u16) -> Option<Surrendered> {
        let fd = self.fd.take()?;
        if std::mem::replace(&mut self.registered, false) && self.pollset != pollset {
            let _ = pollset::epoll(self.pollset).delete(fd.as_fd());
        }
        if self.options.linger != Linger::Off {
            // It is for a close by the user, and would have one of ours wait, or throw away what the kernel has.
            let off = libc::linger { l_onoff: 0, l_linger: 0 };
            let _ = sockopt::set(fd.as_fd(), libc::SOL_SOCKET, libc::SO_LINGER, &off);
        }
        let input = self.input.take().map_or_else(InputBuffer::default, |input| *input);
        let queued = match &mut self.output {
            Some(output) => std::mem::replace(&mut output.queue, SendQueue::new()),
            None => SendQueue::new(),
        };
        let borrowed = self.prebound;
        self.release(env);
        Some(Surrendered { fd, borrowed, input, queued })
    }

    /// Makes `pid` the owner. False if it is dead: then the socket keeps its owner.
    pub fn set_owner(&mut self, env: Env, pid: LocalPid) -> bool {
        let watched = self.watched.as_mut();
        let set = watched.is_some_and(|watched| watched.set_owner(env, &pid));
        if set {
            self.owner = Some(pid);
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

    /// A monitored process has died.
    pub fn process_died(&mut self, env: Env, monitor: Monitor) {
        if self.watched.as_mut().is_some_and(|watched| watched.died(monitor)) {
            self.leave(env);
        }
    }

    /// Closes the socket to all; what is queued is still sent.
    pub fn leave(&mut self, env: Env) {
        self.ended = Ended::Not;
        // A file that is not through yet ends here, and what is queued with it, as in the inet driver.
        let unsent = self.output.as_ref().is_some_and(|output| !output.queue.is_empty() && output.transfer.is_none());
        if unsent && self.state == State::Connected && self.options.linger != Linger::Reset {
            self.linger(env);
        } else {
            self.release(env);
        }
    }

    /// Sends what is queued although nobody has the socket any more. The kernel gives up on a peer that takes nothing,
    /// so this ends.
    fn linger(&mut self, env: Env) {
        if let Some(receiver) = self.receiver.take() {
            self.answer(env, receiver.waiter, (atoms::error(), atoms::closed()));
        }
        self.tell_subscribers(env);
        group::leave_all(env, self);
        self.lingering = true;
        self.owner = None;
        self.input = None;
        self.options.active = Active::Passive;
        if std::mem::take(&mut self.reactor) {
            // Nobody polls a reactor's pollset when the reactor is dead.
            let home = pollset::home(self.pollset);
            if self.move_to(env, home).is_err() {
                return self.release(env);
            }
        }
        if let Some(fd) = &self.fd {
            // The option can only fail on kernels older than 2.6.37; then TCP's own timeout decides.
            let _ = sockopt::set_int(fd.as_fd(), libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT, LINGER_MS);
        }
        // What has come is thrown away, for a peer that sends before it reads.
        self.enqueue(env);
    }

    /// Answers a waiting operation of this socket. False if the process is dead.
    pub fn answer(&self, env: Env, waiter: Waiter, result: impl Encoder) -> bool {
        message::answer(env, self.handle(), waiter, result)
    }

    /// Answers everybody who waits to send or to flush.
    pub fn fail_senders(&mut self, env: Env, reason: Reason) {
        self.tell_writable(env);
        sendfile::fail(env, self, None);
        if let Some(mut output) = self.output.take() {
            for (waiter, _) in output.waiting.drain(..) {
                self.answer(env, waiter, (atoms::error(), reason));
            }
        }
    }

    /// Tells whoever waits for it that output is taken, or that there is no sense in waiting any more.
    pub fn tell_writable(&mut self, env: Env) {
        if let Some(pid) = self.writability.take() {
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
        if let Some(listener) = &mut self.listener
            && let Some(at) = listener.acceptors.iter().position(|acceptor| is(&acceptor.waiter))
        {
            listener.acceptors.remove(at);
            return true;
        }
        if let Some(output) = &mut self.output
            && let Some(at) = output.waiting.iter().position(|(waiter, _)| is(waiter))
        {
            output.waiting.remove(at);
            return true;
        }
        sendfile::cancel(env, self, operation)
    }

    /// The input has ended, by the peer's close or by an error. Active sockets tell their owner; the socket goes as far
    /// as `exit_on_close` says. Returns the reason for a process in `recv`.
    pub fn input_ended(&mut self, env: Env, error: Option<Errno>) -> Reason {
        // A reset is a close to all who did not ask.
        let error = error.filter(|&e| e != Errno::CONNRESET || self.options.show_econnreset);
        let reason = error.map_or(atoms::closed(), |e| errno::atom(env, e));
        let blocked =
            self.output.as_ref().is_some_and(|output| !output.waiting.is_empty() || output.transfer.is_some());
        if self.options.exit_on_close {
            sendfile::fail(env, self, error);
            self.fail_senders(env, atoms::closed());
        }
        self.late_send_error |= !blocked && error.is_none();
        self.input = None;
        self.read_closed |= self.is_active();
        if self.is_active() {
            if error.is_some() {
                message::error(env, self, reason);
            }
            message::closed(env, self);
            if self.options.exit_on_close {
                self.release(env);
            }
        } else if self.options.exit_on_close {
            self.close_descriptor(env);
        }
        reason
    }

    /// The kernel refused output. `shutdown` errors come here too. Returns the reason for the process that sent.
    pub fn output_failed(&mut self, env: Env, errno: Errno, somebody_sends: bool) -> Reason {
        if self.reactor {
            self.fail_senders(env, atoms::closed());
            self.end(env, Ended::Failed(errno));
            return atoms::closed();
        }
        // A pipe that broke without our shutdown was reset by the peer; see tcp_send_error of the inet driver.
        let reset = errno == Errno::CONNRESET || (errno == Errno::PIPE && !self.write_shut);
        let show = reset && self.options.show_econnreset;
        let reason = if show { atoms::econnreset() } else { atoms::closed() };
        let somebody_sends = somebody_sends || self.output.as_ref().is_some_and(|output| output.transfer.is_some());
        sendfile::fail(env, self, Some(errno));
        self.fail_senders(env, reason);
        if self.lingering {
            self.release(env);
        } else if self.is_active() {
            if show {
                message::error(env, self, reason);
            }
            message::closed(env, self);
            if self.options.exit_on_close {
                self.release(env);
            } else {
                self.close_descriptor(env);
            }
        } else {
            if let Some(receiver) = self.receiver.take() {
                self.answer(env, receiver.waiter, (atoms::error(), reason));
            }
            self.close_descriptor(env);
            self.late_send_error |= !somebody_sends;
            self.late_recv_error = true;
            self.late_econnreset = show;
        }
        reason
    }

    /// The answer to a send on a socket that is not connected: the news of its end first, then `enotconn`.
    pub fn send_refused(&mut self) -> Reason {
        match std::mem::take(&mut self.late_send_error) {
            false => atoms::enotconn(),
            // The next recv says it again.
            true if self.late_econnreset => atoms::econnreset(),
            true => atoms::closed(),
        }
    }

    /// The answer to a recv on a socket that is not connected.
    pub fn receive_refused(&mut self) -> Reason {
        match std::mem::take(&mut self.late_recv_error) {
            false => atoms::enotconn(),
            true => {
                self.late_send_error = false;
                match std::mem::take(&mut self.late_econnreset) {
                    true => atoms::econnreset(),
                    false => atoms::closed(),
                }
            }
        }
    }

    /// Closes the descriptor and keeps the socket, for the owner to close.
    pub fn close_descriptor(&mut self, env: Env) {
        group::leave_all(env, self);
        self.state = State::Closed;
        self.close_fd();
        self.input = None;
        self.output = None;
    }

    /// Closes the descriptor without ever waiting: close(2) would block under SO_LINGER even though the socket does not,
    /// so the waiting is done before, at our own queue, and the kernel sends the rest in the background.
    fn close_fd(&mut self) {
        if self.prebound {
            self.leave_fd();
        }
        if let Some(fd) = self.fd.take() {
            if self.options.linger == Linger::Wait {
                let off = libc::linger { l_onoff: 0, l_linger: 0 };
                let _ = sockopt::set(fd.as_fd(), libc::SOL_SOCKET, libc::SO_LINGER, &off);
            }
            drop(fd);
        }
        self.registered = false;
    }

    /// Lets go of a descriptor that stays open, since whoever opened it closes it: its number may be somebody else's
    /// after that. It would stay in its epoll as well.
    fn leave_fd(&mut self) {
        if let Some(fd) = self.fd.take() {
            if std::mem::replace(&mut self.registered, false) {
                let _ = pollset::epoll(self.pollset).delete(fd.as_fd());
            }
            let _ = fd.into_raw_fd();
        }
    }

    /// Tells those who watch the socket that it is closed. Dropping what it watches itself takes all monitors back.
    fn tell_subscribers(&mut self, env: Env) {
        for subscriber in self.watched.take().into_iter().flat_map(|watched| watched.subscribers) {
            message::down(env, self, subscriber);
        }
    }

    /// Closes the socket: everybody who waits is answered, everybody who watches is told, and the handle is dead. What
    /// is left is a vacant slot; nothing may be written to it.
    pub fn release(&mut self, env: Env) {
        if let Some(receiver) = self.receiver.take() {
            self.answer(env, receiver.waiter, (atoms::error(), atoms::closed()));
        }
        if let Some(connector) = self.connector.take() {
            self.answer(env, *connector, (atoms::error(), atoms::closed()));
        }
        if let Some(listener) = self.listener.take() {
            for acceptor in listener.acceptors {
                self.answer(env, acceptor.waiter, (atoms::error(), atoms::closed()));
            }
            if let Some((gate, _)) = listener.gate {
                gate.remove_listening(self.handle());
            }
        }
        self.fail_senders(env, atoms::closed());
        self.tell_subscribers(env);
        group::leave_all(env, self);
        self.close_fd();
        pollset::counters(self.pollset).sockets.fetch_sub(1, std::sync::atomic::Ordering::Relaxed);
        if let Some(ticket) = self.ticket.take() {
            ticket.end(env);
        }
        table::vacate(self);
    }
}

/// How long a peer may take nothing of what an owner left behind, in milliseconds.
const LINGER_MS: libc::c_int = 30_000;
