//! Writes messages to the members on a pollset, and handles members that do not take them.

use std::sync::Arc;

use rustix::io::Errno;
use rustler::{Binary, Env};

use super::broadcast::{Broadcast, Outcomes, tell};
use super::{GroupSettings, Policy, find, leave, left, served};
use crate::pollset;
use crate::socket::table;
use crate::socket::{Ended, Output, Reason, Socket, State};
use crate::term::atoms;
use crate::term::held::Held;
use crate::term::message::{Message, Rest};
use crate::value::chaos;
use crate::value::counters::Tally;
use crate::value::handle::Handle;
use crate::value::panics;
use crate::value::work::Work;
use crate::verb::output;

/// Maximum members and bytes to write before the group is locked again; some tens of microseconds.
const SLICE: usize = 32;
const SLICE_BYTES: usize = 256 * 1024;

/// Writes to the members on a pollset, slice by slice, until everything is delivered or the budget
/// is used up. Returns whether there is more to do.
pub fn serve(env: Env, index: u16, handle: Handle, work: &mut Work, tally: &mut Tally) -> bool {
    let _turn = Turn { index, handle };
    let (mut slice, mut finished) = (Vec::with_capacity(SLICE), Vec::new());
    let (mut outcomes, mut last): (Outcomes, Option<Arc<Broadcast>>) = (Outcomes::default(), None);
    loop {
        let Some(mut group) = find(handle) else { return false };
        let Some(live) = &mut group.live else { return false };
        live.outcomes.add(&outcomes);
        let begins = last.is_none();
        if let Some(broadcast) = last.take() {
            broadcast.count(&outcomes);
        }
        outcomes = Outcomes::default();
        let settings = live.settings;
        let division = live.division(index);
        if begins && division.serving {
            return false;
        }
        if work.is_over() {
            division.serving = false;
            return true;
        }
        let next = division.next(&mut slice, |broadcast| slice_of(&broadcast.message), &mut finished);
        division.serving = next.is_some();
        division.scheduled = next.is_some();
        drop(group);
        chaos::between();
        tell(env, handle, finished.drain(..));
        let Some(broadcast) = next else { return false };
        let mut members = slice.iter().enumerate();
        panics::survive(|| {
            for (at, &member) in members.by_ref() {
                if let Some(&next) = slice.get(at + table::AHEAD) {
                    table::prefetch(next);
                }
                if let Some(mut socket) = table::find(member)
                    && socket.pollset == index
                {
                    work.visited();
                    give(env, &mut socket, (handle, &settings), (&broadcast, true), work, tally, &mut outcomes);
                }
            }
        });
        last = Some(broadcast);
    }
}

/// A poller's turn. If it ends in a panic, its marks are cleared, so that the next broadcast
/// starts another.
struct Turn {
    index: u16,
    handle: Handle,
}

impl Drop for Turn {
    fn drop(&mut self) {
        if std::thread::panicking()
            && let Some(mut group) = find(self.handle)
            && let Some(live) = &mut group.live
        {
            let division = live.division(self.index);
            (division.serving, division.scheduled) = (false, false);
        }
    }
}

/// Number of members in a slice of a message.
fn slice_of(message: &Message) -> usize {
    (SLICE_BYTES / message.len().max(1)).clamp(1, SLICE)
}

/// Gives a message to a socket, if it is still a member and has not had it. Writes it at once if
/// `at_once`.
pub fn give(
    env: Env,
    socket: &mut Socket,
    (group, settings): (Handle, &GroupSettings),
    (broadcast, at_once): (&Broadcast, bool),
    work: &mut Work,
    tally: &mut Tally,
    outcomes: &mut Outcomes,
) {
    let Some(membership) = socket.groups.of(group) else { return };
    if broadcast.sequence <= membership.last {
        return;
    }
    membership.last = broadcast.sequence;
    let once = membership.once;
    if broadcast.except == Some(socket.handle()) {
        return;
    }
    let message = (&broadcast.message, at_once);
    if put(env, socket, (group, settings), message, work, tally, outcomes).is_ok() {
        if once {
            served(env, socket);
        }
        return;
    }
    outcomes.dropped += 1;
    if settings.policy == Policy::Leave && socket.state == State::Connected {
        left(env, socket, group, broadcast.mark);
    }
}

/// Makes a connected socket a member, for one message if `once`. It gets `first`, and then all
/// later broadcasts; the caller holds its lock, so nothing comes in between. Does nothing if it is
/// already a member. Fails, and it is no member, if it cannot get `first`.
pub fn join(env: Env, socket: &mut Socket, group: Handle, once: bool, first: &Binary) -> Result<(), Reason> {
    let Some(settings) = super::join(socket, group, once)?.filter(|_| !first.is_empty()) else { return Ok(()) };
    let (mut work, mut tally, mut outcomes) = (Work::of_caller(), Tally::default(), Outcomes::default());
    let message = Arc::new(Message::new(first));
    let put = put(env, socket, (group, &settings), (&message, true), &mut work, &mut tally, &mut outcomes);
    tally.add_to(pollset::counters(socket.pollset));
    count(group, &outcomes);
    put.map_err(|untaken| {
        leave(env, socket, group);
        match untaken {
            Untaken::Full => atoms::full(),
            Untaken::TooLong => atoms::emsgsize(),
            Untaken::Ended => atoms::closed(),
        }
    })
}

/// Adds results to the counters of the group.
fn count(group: Handle, outcomes: &Outcomes) {
    if let Some(mut group) = find(group)
        && let Some(live) = &mut group.live
    {
        live.outcomes.add(outcomes);
    }
}

/// Why a socket did not take a message.
enum Untaken {
    /// Its queue is full.
    Full,
    /// Too long for its packet type.
    TooLong,
    /// It is closed, or its output is shut down.
    Ended,
}

/// Writes a message to a socket, or queues it. This may end the connection.
fn put(
    env: Env,
    socket: &mut Socket,
    (group, settings): (Handle, &GroupSettings),
    (message, at_once): (&Arc<Message>, bool),
    work: &mut Work,
    tally: &mut Tally,
    outcomes: &mut Outcomes,
) -> Result<(), Untaken> {
    let ending = socket.output.as_ref().is_some_and(|output| output.is_closing(env) || output.shutdown.is_some());
    if ending || socket.state != State::Connected || socket.broken {
        return Err(Untaken::Ended);
    }
    let packet = socket.options.packet;
    let bytes = message.framed(packet).ok_or(Untaken::TooLong)?;
    let waiting = socket.output.as_ref().is_some_and(|output| !output.queue.is_empty() || output.transfer.is_some());
    let mut written = 0;
    if at_once && !waiting && socket.writable {
        match output::write_once(socket, bytes, work, tally) {
            Ok(n) => written = n,
            Err(errno) => {
                socket.output_failed(env, errno, false);
                return Err(Untaken::Ended);
            }
        }
    }
    if written > 0 || bytes.is_empty() {
        socket.statistics.sent.count(bytes.len());
    }
    if written == bytes.len() {
        outcomes.sent += 1;
        return Ok(());
    }
    if let Err(errno) = socket.register() {
        socket.output_failed(env, errno, false);
        return Err(Untaken::Ended);
    }
    if written == 0 {
        make_room(env, socket, group, bytes.len(), settings, outcomes)?;
    }
    let rest = Held::Message(Rest::new(message.clone(), packet, written));
    let queue = &mut socket.output.get_or_insert_with(Output::empty).queue;
    match written {
        0 => queue.push_droppable(rest, group.raw()),
        _ => queue.push_held(rest),
    }
    if written == 0 {
        socket.statistics.sent.count(bytes.len());
    }
    outcomes.queued += 1;
    if socket.writable {
        socket.enqueue(env);
    }
    Ok(())
}

/// Makes room for a message of `bytes` bytes in a member's queue.
fn make_room(
    env: Env,
    socket: &mut Socket,
    group: Handle,
    bytes: usize,
    settings: &GroupSettings,
    outcomes: &mut Outcomes,
) -> Result<(), Untaken> {
    let Some(output) = &mut socket.output else { return Ok(()) };
    let tag = group.raw();
    let is_full = |(messages, waiting): (usize, usize)| {
        messages > 0 && (messages >= settings.max_messages || waiting + bytes > settings.max_bytes)
    };
    // A file transfer relies on the number of bytes ahead of it.
    let fixed = output.transfer.as_ref().is_some_and(|transfer| transfer.ahead > 0);
    match settings.policy {
        Policy::Conflate | Policy::DropOldest if !fixed => {
            let conflate = settings.policy == Policy::Conflate;
            while (conflate || is_full(output.queue.droppable(tag))) && output.queue.drop_oldest(tag) {
                // It was counted as queued before.
                outcomes.dropped += 1;
            }
            Ok(())
        }
        Policy::Disconnect if is_full(output.queue.droppable(tag)) => {
            outcomes.disconnected += 1;
            if socket.reactor {
                socket.end(env, Ended::SendQueueFull);
            } else {
                socket.output_failed(env, Errno::TIMEDOUT, false);
            }
            Err(Untaken::Ended)
        }
        _ if is_full(output.queue.droppable(tag)) => Err(Untaken::Full),
        _ => Ok(()),
    }
}

/// Moves a socket's memberships from one pollset to its present one. It gets the pending messages
/// of the old one at once, because the new one may have delivered them already.
pub fn moved(env: Env, socket: &mut Socket, from: u16) {
    // All memberships move before the first write, which may end the socket: that removes it from
    // its present pollset.
    let moves: Vec<Move> = socket.groups.groups().filter_map(|group| Move::new(socket, group, from)).collect();
    let mut work = Work::of_caller();
    for Move { group, settings, pending, finished } in moves {
        let (mut tally, mut all) = (Tally::default(), Outcomes::default());
        let mut left = pending.iter();
        let panicked = panics::survive(|| {
            for broadcast in left.by_ref() {
                // If the call has used its time, the rest is queued for the poller.
                work.stepped();
                let at_once = !work.is_over();
                let mut outcomes = Outcomes::default();
                give(env, socket, (group, &settings), (broadcast, at_once), &mut work, &mut tally, &mut outcomes);
                broadcast.count(&outcomes);
                all.add(&outcomes);
            }
        });
        if panicked {
            socket.break_off();
        }
        tally.add_to(pollset::counters(socket.pollset));
        count(group, &all);
        tell(env, group, finished.into_iter().chain(pending));
    }
}

/// A membership that has moved to another pollset.
struct Move {
    group: Handle,
    settings: GroupSettings,
    /// Pending messages of the old pollset. They stay unfinished until the member has them.
    pending: Vec<Arc<Broadcast>>,
    /// Messages that no member on the old pollset waits for.
    finished: Vec<Arc<Broadcast>>,
}

impl Move {
    /// Moves the membership; `None` if the group is gone.
    fn new(socket: &Socket, handle: Handle, from: u16) -> Option<Move> {
        let mut group = find(handle)?;
        let live = group.live.as_mut()?;
        let pending: Vec<Arc<Broadcast>> = live.division(from).pending().cloned().collect();
        for broadcast in &pending {
            broadcast.hold();
        }
        let mut finished = Vec::new();
        live.take_out(from, socket.handle(), &mut finished);
        live.division(socket.pollset).join(socket.handle());
        Some(Move { group: handle, settings: live.settings, pending, finished })
    }
}
