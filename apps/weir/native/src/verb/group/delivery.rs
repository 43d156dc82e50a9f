//! Writing a message to the members on a pollset, and what becomes of it where it is not taken.

use std::sync::Arc;

use rustix::io::Errno;
use rustler::{Binary, Env};

use super::broadcast::{Broadcast, Outcomes, tell};
use super::{GroupSettings, Policy, find, left, served};
use crate::pollset;
use crate::socket::table;
use crate::socket::{Ended, Output, Reason, Socket, State};
use crate::term::atoms;
use crate::term::held::Held;
use crate::term::message::{Message, Rest};
use crate::value::counters::Tally;
use crate::value::handle::Handle;
use crate::value::work::Work;
use crate::verb::output;

/// Members, and bytes to them, that are written before the group is looked at again: some tens of microseconds.
const SLICE: usize = 32;
const SLICE_BYTES: usize = 256 * 1024;

/// Writes to the members on a pollset, slice by slice, until all is done or the call has done enough: then there is more,
/// and the group wants another turn.
pub fn serve(env: Env, index: u16, handle: Handle, work: &mut Work, tally: &mut Tally) -> bool {
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
        tell(env, handle, finished.drain(..));
        let Some(broadcast) = next else { return false };
        for (at, &member) in slice.iter().enumerate() {
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
        last = Some(broadcast);
    }
}

/// How many members a message is written to in a row.
fn slice_of(message: &Message) -> usize {
    (SLICE_BYTES / message.len().max(1)).clamp(1, SLICE)
}

/// Gives a message to a member, if it is one still and has not had it. It is written here and now, if that may be.
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
    if put(env, socket, (group, settings), message, work, tally, outcomes) {
        if once {
            served(env, socket);
        }
    } else if settings.policy == Policy::Leave && socket.state == State::Connected {
        left(env, socket, group, broadcast.mark);
    }
}

/// Makes a connected socket a member, `once` for one message. It gets `first`, and then what is broadcast from now on: the
/// caller holds its lock, so nothing comes between. Nothing happens if it is a member.
pub fn join(env: Env, socket: &mut Socket, group: Handle, once: bool, first: &Binary) -> Result<(), Reason> {
    let member = socket.handle();
    let Some(settings) = super::join(socket, group, once)?.filter(|_| !first.is_empty()) else { return Ok(()) };
    let (mut work, mut tally, mut outcomes) = (Work::of_caller(), Tally::default(), Outcomes::default());
    let message = Arc::new(Message::new(first));
    put(env, socket, (group, &settings), (&message, true), &mut work, &mut tally, &mut outcomes);
    tally.add_to(pollset::counters(socket.pollset));
    if let Some(mut group) = find(group)
        && let Some(live) = &mut group.live
    {
        live.outcomes.add(&outcomes);
    }
    // The write may have been the end of it.
    match socket.handle() == member && socket.state == State::Connected {
        true => Ok(()),
        false => Err(atoms::closed()),
    }
}

/// Writes a message to a socket, or has it wait. True if it was taken.
fn put(
    env: Env,
    socket: &mut Socket,
    (group, settings): (Handle, &GroupSettings),
    (message, at_once): (&Arc<Message>, bool),
    work: &mut Work,
    tally: &mut Tally,
    outcomes: &mut Outcomes,
) -> bool {
    let ending = socket.output.as_ref().is_some_and(|output| output.is_closing(env) || output.shutdown.is_some());
    let packet = socket.options.packet;
    let Some(bytes) = message.framed(packet).filter(|_| !ending && socket.state == State::Connected) else {
        outcomes.dropped += 1;
        return false;
    };
    let waiting = socket.output.as_ref().is_some_and(|output| !output.queue.is_empty() || output.transfer.is_some());
    let mut written = 0;
    if at_once && !waiting && socket.writable {
        match output::write_once(socket, bytes, work, tally) {
            Ok(n) => written = n,
            Err(errno) => {
                outcomes.dropped += 1;
                socket.output_failed(env, errno, false);
                return false;
            }
        }
    }
    if written > 0 || bytes.is_empty() {
        socket.statistics.sent.count(bytes.len());
    }
    if written == bytes.len() {
        outcomes.sent += 1;
        return true;
    }
    if let Err(errno) = socket.register() {
        outcomes.dropped += 1;
        socket.output_failed(env, errno, false);
        return false;
    }
    if written == 0 && !make_room(env, socket, group, bytes.len(), settings, outcomes) {
        outcomes.dropped += 1;
        return false;
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
    true
}

/// Sees to it that a message of so many bytes may wait for a member. False if it may not.
fn make_room(
    env: Env,
    socket: &mut Socket,
    group: Handle,
    bytes: usize,
    settings: &GroupSettings,
    outcomes: &mut Outcomes,
) -> bool {
    let Some(output) = &mut socket.output else { return true };
    let tag = group.raw();
    let is_full = |(messages, waiting): (usize, usize)| {
        messages > 0 && (messages >= settings.max_messages || waiting + bytes > settings.max_bytes)
    };
    // What stands before a file that is being sent is counted there.
    let fixed = output.transfer.as_ref().is_some_and(|transfer| transfer.ahead > 0);
    match settings.policy {
        Policy::Conflate | Policy::DropOldest if !fixed => {
            let conflate = settings.policy == Policy::Conflate;
            while (conflate || is_full(output.queue.droppable(tag))) && output.queue.drop_oldest(tag) {
                // It was counted as queued, and is not any more.
                outcomes.dropped += 1;
            }
            true
        }
        Policy::Disconnect if is_full(output.queue.droppable(tag)) => {
            outcomes.disconnected += 1;
            if socket.reactor {
                socket.end(env, Ended::SendQueueFull);
            } else {
                socket.output_failed(env, Errno::TIMEDOUT, false);
            }
            false
        }
        _ => !is_full(output.queue.droppable(tag)),
    }
}

/// Takes a socket's memberships from one pollset to another, where it is by now. It gets at once what was still on its
/// way on the old one: on the new one that may have been through.
pub fn moved(env: Env, socket: &mut Socket, from: u16) {
    let handles: Vec<Handle> = socket.groups.groups().collect();
    let member = socket.handle();
    let mut work = Work::of_caller();
    for handle in handles {
        if socket.handle() != member {
            return;
        }
        let mut finished = Vec::new();
        let Some((pending, settings)) = find(handle).and_then(|mut group| {
            let live = group.live.as_mut()?;
            let pending: Vec<Arc<Broadcast>> = live.division(from).pending().cloned().collect();
            live.take_out(from, member, &mut finished);
            live.division(socket.pollset).join(member);
            Some((pending, live.settings))
        }) else {
            continue;
        };
        let (mut tally, mut outcomes) = (Tally::default(), Outcomes::default());
        for broadcast in pending {
            // It may be the end of it.
            if socket.state != State::Connected {
                break;
            }
            // What the call has no time for waits for the poller, like what the kernel does not take.
            work.stepped();
            let at_once = !work.is_over();
            give(env, socket, (handle, &settings), (&broadcast, at_once), &mut work, &mut tally, &mut outcomes);
        }
        tally.add_to(pollset::counters(socket.pollset));
        if let Some(mut group) = find(handle)
            && let Some(live) = &mut group.live
        {
            live.outcomes.add(&outcomes);
        }
        tell(env, handle, finished);
    }
}
