//! Serves ready sockets.

use rustix::event::epoll::EventFlags;
use rustix::net::sockopt;
use rustler::Env;

use crate::kernel::epoll;
use crate::pollset;
use crate::reactor;
use crate::reactor::Batch;
use crate::relay;
use crate::socket::table;
use crate::socket::{Socket, State};
use crate::value::handle::{Handle, Target};
use crate::value::work::Work;
use crate::verb::accept;
use crate::verb::connect;
use crate::verb::input;
use crate::verb::output;

/// Prefetches the target of an event into the processor's cache.
pub fn prefetch(raw: u64) {
    match Target::from_raw(raw) {
        Some(Target::Socket(handle)) => table::prefetch(handle),
        Some(Target::Relay(handle, _)) => relay::prefetch(handle),
        Some(Target::Group(_) | Target::Pollset(_)) | None => {}
    }
}

/// Visits a socket of the ready list, unless it has moved to another pollset.
pub fn revisit<'a>(env: Env<'a>, index: u16, handle: Handle, work: &mut Work, batch: &mut Batch<'a>) {
    if let Some(mut socket) = table::find(handle)
        // The end of a listener's pause pushes its listening sockets without locking them.
        && (socket.queued || socket.state == State::Listening)
        && socket.pollset == index
    {
        socket.queued = false;
        visit(env, &mut socket, work, batch);
    }
}

/// Records what the kernel reports. It is edge-triggered: each change is reported once.
pub fn note(socket: &mut Socket, flags: EventFlags) {
    let hung_up = epoll::is_hung_up(flags);
    socket.hung_up |= hung_up;
    if hung_up || flags.intersects(EventFlags::IN | EventFlags::PRI) {
        socket.readable.has_come(hung_up, flags.contains(EventFlags::PRI));
    }
    socket.writable |= hung_up || flags.contains(EventFlags::OUT);
}

/// Receive buffers below this size fill up while reads are gathered: with 128 KiB a stream was
/// three times as slow.
const WIDE: usize = 384 * 1024;

/// Whether the kernel's receive buffer is too small for gathering.
fn is_narrow(socket: &Socket) -> bool {
    socket.fd.as_ref().is_some_and(|fd| sockopt::socket_recv_buffer_size(fd).is_ok_and(|size| size < WIDE))
}

/// Serves a ready socket.
pub fn visit<'a>(env: Env<'a>, socket: &mut Socket, work: &mut Work, batch: &mut Batch<'a>) {
    if work.is_over() {
        return socket.enqueue(env);
    }
    if work.is_substitute() && (socket.is_active() || socket.has_untold()) {
        socket.queued = true;
        return pollset::get(socket.pollset).ready.keep(Target::Socket(socket.handle()));
    }
    work.visited();
    if socket.reactor {
        return reactor::serve(env, socket, work, batch);
    }
    socket.tell_rest(env);
    if socket.broken {
        return socket.give_up(env);
    }
    if socket.state == State::Connecting {
        connect::serve(env, socket);
    }
    match socket.state {
        State::Listening => match &socket.listening {
            Some(listening) if listening.reactor.is_some() => reactor::accept_all(env, socket, work, batch),
            _ => accept::serve(env, socket, work),
        },
        State::Connected => {
            if socket.output.is_some() {
                output::flush(env, socket, work);
            }
            if socket.writability.is_some() && socket.writable && socket.output.is_none() {
                socket.tell_writable(env);
            }
            // A failed write may have closed the socket.
            if input::is_readable(socket) {
                match socket.lingering {
                    true => input::discard(env, socket, work),
                    false => {
                        input::serve(env, socket, work);
                        if socket.bulk
                            && let Some(tally) = &mut work.tally
                        {
                            tally.bulk += 1;
                            tally.narrow |= is_narrow(socket);
                        }
                    }
                }
            }
        }
        State::Free | State::Open | State::Connecting | State::Closed => {}
    }
}
