//! What a target that is ready is served by.

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

/// Has the processor fetch what an event is for.
pub fn prefetch(raw: u64) {
    match Target::from_raw(raw) {
        Some(Target::Socket(handle)) => table::prefetch(handle),
        Some(Target::Relay(handle, _)) => relay::prefetch(handle),
        Some(Target::Group(_) | Target::Pollset(_)) | None => {}
    }
}

/// Visits a socket of the ready list, if it has not been taken to another pollset meanwhile.
pub fn revisit<'a>(env: Env<'a>, index: u16, handle: Handle, work: &mut Work, batch: &mut Batch<'a>) {
    if let Some(mut socket) = table::find(handle)
        // A listener whose pause ends has its listening sockets visited without their lock.
        && (socket.queued || socket.state == State::Listening)
        && socket.pollset == index
    {
        socket.queued = false;
        visit(env, &mut socket, work, batch);
    }
}

/// What the kernel says about a socket. Edge-triggered: it says so once, and we remember.
pub fn note(socket: &mut Socket, flags: EventFlags) {
    let hung_up = epoll::is_hung_up(flags);
    socket.hung_up |= hung_up;
    if hung_up || flags.intersects(EventFlags::IN | EventFlags::PRI) {
        socket.readable.has_come(hung_up, flags.contains(EventFlags::PRI));
    }
    socket.writable |= hung_up || flags.contains(EventFlags::OUT);
}

/// A stream into a buffer that is smaller stops while nobody reads: at 128 KiB it became three times as slow.
const WIDE: usize = 384 * 1024;

/// Whether the kernel has no room for what comes in the time that streams are gathered.
fn is_narrow(socket: &Socket) -> bool {
    socket.fd.as_ref().is_some_and(|fd| sockopt::socket_recv_buffer_size(fd).is_ok_and(|size| size < WIDE))
}

/// Does what a socket has become ready for.
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
            // A failed write may have closed it.
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
