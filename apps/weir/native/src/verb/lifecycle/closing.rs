//! Closing sockets: by a call, the peer, an error, or the death of the owner.

use std::os::fd::{AsFd, IntoRawFd};

use rustix::io::Errno;
use rustler::{Env, Monitor};

use crate::kernel::sockopt;
use crate::pollset;
use crate::socket::message;
use crate::socket::transfer;
use crate::socket::{Ended, Reason, Socket, State};
use crate::term::atoms;
use crate::term::errno;
use crate::value::active::Active;
use crate::value::options::Linger;
use crate::verb::group;

/// How long a peer may acknowledge nothing while a socket lingers, in milliseconds.
const LINGER_MS: libc::c_int = 30_000;

impl Socket {
    /// Notes that a monitored process has died. If it was the owner, leaves the socket.
    pub fn process_died(&mut self, env: Env, monitor: Monitor) {
        if self.watched.as_mut().is_some_and(|watched| watched.died(monitor)) {
            self.leave(env);
        }
    }

    /// Closes the socket for all processes; queued output is still sent.
    pub fn leave(&mut self, env: Env) {
        self.ended = Ended::Not;
        // An unfinished file ends here, with the output queued behind it, as in the inet driver.
        let unsent = self.output.as_ref().is_some_and(|output| !output.queue.is_empty() && output.transfer.is_none());
        if unsent && self.state == State::Connected && self.options.linger != Linger::Reset {
            self.linger(env);
        } else {
            self.release(env);
        }
    }

    /// Sends queued output although the socket has no owner. This ends, because the kernel gives
    /// up on a peer that acknowledges nothing.
    fn linger(&mut self, env: Env) {
        if let Some(receiver) = self.receiver.take() {
            self.answer(env, receiver.waiter, (atoms::error(), atoms::closed()));
        }
        self.tell_subscribers(env);
        self.tell_writable(env);
        group::leave_all(env, self);
        self.lingering = true;
        self.owner = None;
        self.input = None;
        self.options.active = Active::Passive;
        if std::mem::take(&mut self.reactor) {
            // A dead reactor's pollset is not polled.
            let home = pollset::private::home(self.pollset);
            if self.relocate(env, home).is_err() {
                return self.release(env);
            }
        }
        if let Some(fd) = &self.fd
            && sockopt::set_int(fd.as_fd(), libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT, LINGER_MS).is_err()
            // Unix sockets have no TCP_USER_TIMEOUT; `weir_reaper` enforces it, and rescans after
            // a restart.
            && let Some(reaper) = env.whereis_pid(atoms::weir_reaper())
        {
            let _ = env.send(&reaper, (atoms::weir_lingers(), self.handle().raw()));
        }
        // Received data is discarded, for a peer that sends before it reads.
        self.enqueue(env);
    }

    /// Bytes of a lingering socket that its peer has not taken; `None` if it does not linger.
    pub fn left_behind(&self) -> Option<usize> {
        let output = self.output.as_ref().filter(|_| self.lingering)?;
        let in_kernel = self.fd.as_ref().map_or(0, |fd| sockopt::unsent(fd.as_fd()).unwrap_or(0));
        Some(output.queue.len() + in_kernel)
    }

    /// Handles the end of input, by the peer's close or an error. The owner of an active socket is
    /// told; `exit_on_close` decides whether the socket closes. Returns the reason for a process
    /// in `recv`.
    pub fn input_ended(&mut self, env: Env, error: Option<Errno>) -> Reason {
        // Without `show_econnreset`, a reset counts as a close.
        let error = error.filter(|&e| e != Errno::CONNRESET || self.options.show_econnreset);
        let reason = error.map_or(atoms::closed(), |e| errno::atom(env, e));
        let blocked =
            self.output.as_ref().is_some_and(|output| !output.waiting.is_empty() || output.transfer.is_some());
        if self.options.exit_on_close {
            transfer::fail(env, self, error);
            self.fail_senders(env, atoms::closed());
        }
        self.late_send_error |= !blocked && error.is_none();
        self.input = None;
        self.read_closed |= self.is_active();
        if self.is_active() {
            self.tell_end(env, error);
        } else if self.options.exit_on_close {
            self.close_descriptor(env);
        }
        reason
    }

    /// Handles a refusal of output by the kernel, and failed shutdowns. Returns the reason for the
    /// sending process.
    pub fn output_failed(&mut self, env: Env, errno: Errno, somebody_sends: bool) -> Reason {
        if self.reactor {
            self.fail_senders(env, atoms::closed());
            self.end(env, Ended::Failed(errno));
            return atoms::closed();
        }
        // EPIPE without our own shutdown is a reset by the peer; see tcp_send_error of the inet
        // driver.
        let reset = errno == Errno::CONNRESET || (errno == Errno::PIPE && !self.write_shut);
        let show = reset && self.options.show_econnreset;
        let reason = if show { atoms::econnreset() } else { atoms::closed() };
        let somebody_sends = somebody_sends || self.output.as_ref().is_some_and(|output| output.transfer.is_some());
        transfer::fail(env, self, Some(errno));
        self.fail_senders(env, reason);
        if self.lingering {
            self.release(env);
        } else if self.is_active() {
            let stays = !self.options.exit_on_close;
            self.tell_end(env, show.then_some(Errno::CONNRESET));
            if stays {
                self.close_descriptor(env);
            }
        } else {
            if let Some(receiver) = self.receiver.take() {
                // Only senders are told of a reset; see tcp_close_check of the inet driver.
                self.answer(env, receiver.waiter, (atoms::error(), atoms::closed()));
            }
            self.close_descriptor(env);
            self.late_send_error |= !somebody_sends;
            self.late_recv_error = true;
            self.late_econnreset = show;
        }
        reason
    }

    /// Tells the owner of an active socket that the connection has ended, and closes it if
    /// `exit_on_close` is set. If the caller may not send messages to the owner, the poller does.
    pub fn tell_end(&mut self, env: Env, error: Option<Errno>) {
        let Some(voice) = self.voice(env) else {
            if self.options.exit_on_close {
                self.close_descriptor(env);
            }
            return self.end(env, error.map_or(Ended::Closed, Ended::Failed));
        };
        if let Some(errno) = error {
            message::error(voice, self, errno::atom(env, errno));
        }
        message::closed(voice, self);
        if self.options.exit_on_close {
            self.release(env);
        }
    }

    /// Tells the owner what other processes have left to the poller.
    pub fn tell_rest(&mut self, env: Env) {
        if !self.has_untold() {
            return;
        }
        let Some(voice) = self.voice(env) else {
            return self.leave_telling(env);
        };
        if std::mem::take(&mut self.passive_untold) {
            message::passive(voice, self);
        }
        match std::mem::replace(&mut self.ended, Ended::Not) {
            Ended::Not => {}
            Ended::Failed(errno) => self.tell_end(env, Some(errno)),
            Ended::Closed | Ended::SendQueueFull => self.tell_end(env, None),
        }
    }

    /// Whether the socket is closed, but the poller has not told the owner yet.
    fn is_leaving(&self) -> bool {
        self.ended != Ended::Not && self.options.exit_on_close
    }

    /// The reason for a send on an unconnected socket: first the end of the connection, then
    /// `enotconn`.
    pub fn send_refused(&mut self) -> Reason {
        match std::mem::take(&mut self.late_send_error) {
            false if self.is_leaving() => atoms::closed(),
            false => atoms::enotconn(),
            // The next recv returns it, too.
            true if self.late_econnreset => atoms::econnreset(),
            true => atoms::closed(),
        }
    }

    /// The reason for a recv on an unconnected socket.
    pub fn receive_refused(&mut self) -> Reason {
        match std::mem::take(&mut self.late_recv_error) {
            false if self.is_leaving() => atoms::closed(),
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

    /// Closes a socket that a panic has left in an inconsistent state. Its owner is told like of
    /// any other end.
    pub fn give_up(&mut self, env: Env) {
        if !self.reactor && self.owner.is_some() && self.state != State::Closed {
            // If another process has sent it messages, the poller returns when those have arrived.
            let Some(voice) = self.voice(env) else { return self.leave_telling(env) };
            message::closed(voice, self);
        }
        self.release(env);
    }

    /// Closes the descriptor, and keeps the socket for the owner to close.
    pub fn close_descriptor(&mut self, env: Env) {
        if self.state == State::Free {
            return;
        }
        group::leave_all(env, self);
        self.state = State::Closed;
        self.close_fd();
        self.input = None;
        self.output = None;
    }

    /// Closes the descriptor without blocking. With SO_LINGER, close(2) blocks even on a
    /// non-blocking socket. So the waiting is done before, at our own queue, and the kernel sends
    /// the rest in the background.
    fn close_fd(&mut self) {
        if self.prebound {
            self.leave_fd();
        }
        if let Some(fd) = self.fd.take() {
            if self.registered && self.state == State::Listening {
                // Other descriptors may share the open file; then close(2) leaves it in the epoll
                // instance.
                let _ = pollset::epoll(self.pollset).delete(fd.as_fd());
            }
            if self.options.linger == Linger::Wait {
                let off = libc::linger { l_onoff: 0, l_linger: 0 };
                let _ = sockopt::set(fd.as_fd(), libc::SOL_SOCKET, libc::SO_LINGER, &off);
            }
            drop(fd);
        }
        self.registered = false;
    }

    /// Releases a descriptor without closing it. The program that opened it closes it, after which
    /// its number may be reused; and it would stay in the epoll instance.
    fn leave_fd(&mut self) {
        if let Some(fd) = self.fd.take() {
            if std::mem::replace(&mut self.registered, false) {
                let _ = pollset::epoll(self.pollset).delete(fd.as_fd());
            }
            let _ = fd.into_raw_fd();
        }
    }

    /// Notifies the processes that monitor the socket. Dropping `watched` removes all monitors.
    fn tell_subscribers(&mut self, env: Env) {
        for subscriber in self.watched.take().into_iter().flat_map(|watched| watched.subscribers) {
            message::down(env, self, subscriber);
        }
    }

    /// Closes the socket: answers all waiting processes, notifies all monitors, and invalidates
    /// the handle. The rest is dropped with the lock (see `value::slots`), so callers may continue
    /// to use it.
    pub fn release(&mut self, env: Env) {
        if self.state == State::Free {
            return;
        }
        if let Some(receiver) = self.receiver.take() {
            self.answer(env, receiver.waiter, (atoms::error(), atoms::closed()));
        }
        if let Some(connector) = self.connector.take() {
            self.answer(env, *connector, (atoms::error(), atoms::closed()));
        }
        if let Some(listening) = self.listening.take() {
            for acceptor in listening.acceptors {
                self.answer(env, acceptor.waiter, (atoms::error(), atoms::closed()));
            }
            if let Some((listener, _)) = listening.listener {
                listener.remove_listening(self.handle());
            }
        }
        self.fail_senders(env, atoms::closed());
        self.tell_subscribers(env);
        group::leave_all(env, self);
        self.close_fd();
        pollset::counters(self.pollset).sockets.fetch_sub(1, std::sync::atomic::Ordering::Relaxed);
        if let Some(permit) = self.permit.take() {
            permit.end(env);
        }
        self.vacate();
    }
}
