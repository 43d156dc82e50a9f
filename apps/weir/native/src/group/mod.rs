//! Groups: one message to many sockets, each written to by its own pollset.
//!
//! A group knows its members by pollset ([`division`]), a member its groups. What decides is the member: whether it is
//! one, and which message it had last. So a slice of members may be out of date when it is served, and nobody gets a
//! message twice or one from before he came. Locks are taken in the order socket, group, ready list of a pollset.

mod division;
mod membership;
mod message;

use std::sync::{Arc, MutexGuard, PoisonError};

use rustix::io::Errno;
use rustler::env::SavedTerm;
use rustler::{Atom, Binary, Encoder, Env, LocalPid, Monitor, OwnedEnv, Resource, ResourceArc, Term};

use self::division::Division;
use self::membership::Membership;
pub use self::membership::Memberships;
use self::message::Message;
pub use self::message::Rest;
use crate::counters::Tally;
use crate::handle::{Handle, Target};
use crate::held::Held;
use crate::slots::{Occupant, Slots, Vacant};
use crate::socket::{Ended, Reason, Socket, State};
use crate::sync::Mutex;
use crate::work::Work;
use crate::{atoms, output, pollset, table};

/// Groups that there can be.
const GROUPS: usize = 65_536;
const CHUNK: usize = 256;

static ALL: Slots<Group, { GROUPS / CHUNK }, CHUNK> = Slots::new(Mutex::new(Vacant::new()));

/// The most bytes of a message: a call that puts a length in front of them stays well under a millisecond.
const MESSAGE: usize = 1024 * 1024;

/// Members, and bytes to them, that are written before the group is looked at again: some tens of microseconds.
const SLICE: usize = 32;
const SLICE_BYTES: usize = 256 * 1024;

/// What a group is found as: locked; deleted; none ever.
pub type Lookup = crate::slots::Lookup<'static, Group>;

/// Finds the group of a handle.
pub fn lookup(handle: Handle) -> Lookup {
    ALL.lookup(handle)
}

fn find(handle: Handle) -> Option<MutexGuard<'static, Group>> {
    match lookup(handle) {
        Lookup::Open(group) => Some(group),
        Lookup::Gone | Lookup::Never => None,
    }
}

/// What happens to a message for a member whose queue is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Those that have waited longest make room.
    DropOldest,
    DropNewest,
    /// Only the latest waits, always.
    Conflate,
    /// The connection is closed.
    Disconnect,
}

/// What a group is made with.
#[derive(Clone, Copy)]
pub struct Settings {
    pub policy: Policy,
    /// Messages of the group, and their bytes, that may wait for one member.
    pub max_messages: usize,
    pub max_bytes: usize,
    /// Messages that may be on their way to the members of one pollset.
    pub backlog: usize,
}

/// What has become of messages, one for each member.
#[derive(Clone, Copy, Default)]
pub struct Outcomes {
    /// The kernel has taken it.
    pub sent: u64,
    /// It waits for the member.
    pub queued: u64,
    /// It was thrown away, now or after it had waited.
    pub dropped: u64,
    /// Members that were closed for it.
    pub disconnected: u64,
}

impl Outcomes {
    fn add(&mut self, other: &Outcomes) {
        self.sent += other.sent;
        self.queued += other.queued;
        self.dropped += other.dropped;
        self.disconnected += other.disconnected;
    }

    fn pairs(&self) -> [(Atom, u64); 4] {
        [
            (atoms::sent(), self.sent),
            (atoms::queued(), self.queued),
            (atoms::dropped(), self.dropped),
            (atoms::disconnected(), self.disconnected),
        ]
    }
}

/// A group, in its slot of the table, under the slot's lock.
pub struct Group {
    slot: u32,
    generation: u32,
    live: Option<Box<Live>>,
}

struct Live {
    settings: Settings,
    divisions: Vec<(u16, Division<Arc<Broadcast>>)>,
    /// Of the last broadcast.
    sequence: u64,
    outcomes: Outcomes,
    owner: LocalPid,
    /// The monitor of the owner ends with this.
    _watch: ResourceArc<Watch>,
}

/// A message on its way.
struct Broadcast {
    message: Arc<Message>,
    sequence: u64,
    /// A member that does not get it.
    except: Option<Handle>,
    notice: Option<Mutex<Notice>>,
}

/// Who wants to know when a broadcast has been through.
struct Notice {
    pid: LocalPid,
    environment: OwnedEnv,
    reference: SavedTerm,
    /// Divisions that it has still to go through.
    divisions: usize,
    outcomes: Outcomes,
}

impl Occupant for Group {
    fn vacant(slot: u32, generation: u32) -> Group {
        Group { slot, generation, live: None }
    }

    fn handle(&self) -> Handle {
        Handle::new(self.slot, self.generation)
    }

    fn is_open(&self) -> bool {
        self.live.is_some()
    }
}

/// What the owner's death is noticed by.
struct Watch {
    handle: Handle,
}

#[cfg_attr(not(test), rustler::resource_impl)]
impl Resource for Watch {
    const IMPLEMENTS_DOWN: bool = true;

    fn down<'a>(&'a self, env: Env<'a>, _pid: LocalPid, _monitor: Monitor) {
        delete(env, self.handle);
    }
}

/// Makes a group of the calling process. Nothing when there are as many as there can be.
pub fn new(env: Env, settings: Settings) -> Option<Handle> {
    let mut group = ALL.allocate()?;
    let handle = group.handle();
    let watch = ResourceArc::new(Watch { handle });
    // The calling process is alive: it calls.
    let _ = watch.monitor(Some(env), &env.pid());
    group.live = Some(Box::new(Live {
        settings,
        divisions: Vec::new(),
        sequence: 0,
        outcomes: Outcomes::default(),
        owner: env.pid(),
        _watch: watch,
    }));
    Some(handle)
}

/// Deletes a group. Its members stay what they are; what waits for them still goes out, what is on its way does not.
pub fn delete(env: Env, handle: Handle) {
    let mut finished = Vec::new();
    let live = find(handle).and_then(|mut group| {
        let live = group.live.take();
        ALL.vacate(&mut group);
        live
    });
    // Without the lock: what watches the owner must not be dropped under it.
    let Some(mut live) = live else { return };
    for (_, division) in &mut live.divisions {
        finished.extend(division.clear());
    }
    tell(env, handle, finished);
}

/// Makes a connected socket a member. It gets what is broadcast from now on. Nothing happens if it is one.
pub fn join(socket: &mut Socket, handle: Handle) -> Result<(), Reason> {
    if socket.state != State::Connected {
        return Err(atoms::enotconn());
    }
    let Some(mut group) = find(handle) else {
        return Err(atoms::closed());
    };
    let Some(live) = &mut group.live else {
        return Err(atoms::closed());
    };
    if !live.division(socket.pollset).join(socket.handle()) {
        return Ok(());
    }
    let membership = Membership { group: handle, last: live.sequence };
    drop(group);
    socket.groups.add(membership, |group| find(group).is_some());
    Ok(())
}

/// Ends a membership. What waits for the member still goes out. False if there is none.
pub fn leave(env: Env, socket: &mut Socket, handle: Handle) -> bool {
    if !socket.groups.remove(handle) {
        return false;
    }
    take_out(env, handle, socket.pollset, socket.handle());
    true
}

/// Ends all memberships of a socket that is no connection any more.
pub fn leave_all(env: Env, socket: &mut Socket) {
    if socket.groups.is_empty() {
        return;
    }
    for group in std::mem::take(&mut socket.groups).groups() {
        take_out(env, group, socket.pollset, socket.handle());
    }
}

fn take_out(env: Env, handle: Handle, pollset: u16, member: Handle) {
    let mut finished = Vec::new();
    if let Some(mut group) = find(handle)
        && let Some(live) = &mut group.live
    {
        live.take_out(pollset, member, &mut finished);
    }
    tell(env, handle, finished);
}

/// Takes a socket's memberships from one pollset to another, where it is by now. It gets at once what was still on its
/// way on the old one: on the new one that may have been through.
pub fn moved(env: Env, socket: &mut Socket, from: u16) {
    let handles: Vec<Handle> = socket.groups.groups().collect();
    let member = socket.handle();
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
        let (mut work, mut tally, mut outcomes) = (Work::of_caller(), Tally::default(), Outcomes::default());
        for broadcast in pending {
            // It may be the end of it.
            if socket.state != State::Connected {
                break;
            }
            give(env, socket, (handle, &settings), &broadcast, &mut work, &mut tally, &mut outcomes);
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

/// What a broadcast is refused for.
pub enum Refused {
    /// As many as may be are on their way already.
    Busy,
    TooLarge,
    Closed,
}

/// Sends a message to all members but `except`. Returns how many those are. `reference` is told to the calling process
/// when it has been through.
pub fn broadcast(
    env: Env,
    handle: Handle,
    binary: &Binary,
    except: Option<Handle>,
    reference: Option<Term>,
) -> Result<usize, Refused> {
    if binary.len() > MESSAGE {
        return Err(Refused::TooLarge);
    }
    let message = Arc::new(Message::new(binary));
    let mut group = find(handle).ok_or(Refused::Closed)?;
    let live = group.live.as_mut().ok_or(Refused::Closed)?;
    let backlog = live.settings.backlog;
    if live.divisions.iter().any(|(_, division)| division.pending().count() >= backlog) {
        return Err(Refused::Busy);
    }
    live.sequence += 1;
    let divisions = live.divisions.iter().filter(|(_, division)| division.len() > 0).count();
    let notice = reference.map(|reference| {
        let environment = OwnedEnv::new();
        let reference = environment.save(reference);
        Mutex::new(Notice { pid: env.pid(), environment, reference, divisions, outcomes: Outcomes::default() })
    });
    let broadcast = Arc::new(Broadcast { message, sequence: live.sequence, except, notice });
    let mut members = 0;
    for (index, division) in &mut live.divisions {
        if division.len() > 0 {
            members += division.len();
            division.push(broadcast.clone());
            if !std::mem::replace(&mut division.scheduled, true) {
                pollset::push_ready(env, *index, Target::Group(handle));
            }
        }
    }
    members -=
        usize::from(except.is_some_and(|except| live.divisions.iter().any(|(_, division)| division.has(except))));
    drop(group);
    if divisions == 0 {
        broadcast.tell(env, handle);
    }
    Ok(members)
}

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
        let next = division.next(&mut slice, |message| message.message.slice(), &mut finished);
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
                give(env, &mut socket, (handle, &settings), &broadcast, work, tally, &mut outcomes);
            }
        }
        last = Some(broadcast);
    }
}

impl Live {
    /// The members on a pollset.
    fn division(&mut self, pollset: u16) -> &mut Division<Arc<Broadcast>> {
        let at = match self.divisions.iter().position(|(index, _)| *index == pollset) {
            Some(at) => at,
            None => {
                self.divisions.push((pollset, Division::new()));
                self.divisions.len() - 1
            }
        };
        &mut self.divisions[at].1
    }

    /// Takes a member out. Messages that nobody on its pollset waits for any more go to `finished`.
    fn take_out(&mut self, pollset: u16, member: Handle, finished: &mut Vec<Arc<Broadcast>>) {
        let division = self.division(pollset);
        division.leave(member);
        if division.len() == 0 {
            finished.extend(division.clear());
            self.divisions.retain(|(index, division)| *index != pollset || division.serving);
        }
    }
}

impl Group {
    /// How many members there are; nothing if it was deleted.
    pub fn size(&self) -> usize {
        self.live.iter().flat_map(|live| &live.divisions).map(|(_, division)| division.len()).sum()
    }

    /// What it is set to and what it has done, as a map.
    pub fn describe<'a>(&self, env: Env<'a>) -> Option<Term<'a>> {
        let live = self.live.as_ref()?;
        let pending = live.divisions.iter().map(|(_, division)| division.pending().count()).max().unwrap_or(0);
        let mut pairs = vec![
            (atoms::owner().encode(env), live.owner.encode(env)),
            (atoms::members().encode(env), self.size().encode(env)),
            (atoms::broadcasts().encode(env), live.sequence.encode(env)),
            (atoms::pending().encode(env), pending.encode(env)),
        ];
        pairs.extend(live.outcomes.pairs().iter().map(|(name, count)| (name.encode(env), count.encode(env))));
        Term::map_from_pairs(env, &pairs).ok()
    }
}

impl Broadcast {
    fn count(&self, outcomes: &Outcomes) {
        if let Some(notice) = &self.notice {
            notice.lock().unwrap_or_else(PoisonError::into_inner).outcomes.add(outcomes);
        }
    }

    /// A division is through with it: `{weir_group, Group, Reference, Outcomes}` to whoever asked, after the last one.
    fn tell(&self, env: Env, handle: Handle) {
        let Some(notice) = &self.notice else { return };
        let mut notice = notice.lock().unwrap_or_else(PoisonError::into_inner);
        notice.divisions = notice.divisions.saturating_sub(1);
        if notice.divisions == 0 {
            let reference = notice.environment.run(|own| notice.reference.load(own).in_env(env));
            let group = (atoms::weir_group(), handle.raw());
            if let Ok(outcomes) = Term::map_from_pairs(env, &notice.outcomes.pairs()) {
                // A process that died meanwhile does not want to know any more.
                let _ = env.send(&notice.pid, (atoms::weir_group(), group, reference, outcomes));
            }
        }
    }
}

/// Tells those who want to know that messages have been through.
fn tell(env: Env, handle: Handle, finished: impl IntoIterator<Item = Arc<Broadcast>>) {
    for broadcast in finished {
        broadcast.tell(env, handle);
    }
}

/// Gives a message to a member, if it is one still and has not had it.
fn give(
    env: Env,
    socket: &mut Socket,
    (group, settings): (Handle, &Settings),
    broadcast: &Broadcast,
    work: &mut Work,
    tally: &mut Tally,
    outcomes: &mut Outcomes,
) {
    let Some(membership) = socket.groups.of(group) else { return };
    if broadcast.sequence <= membership.last {
        return;
    }
    membership.last = broadcast.sequence;
    if broadcast.except == Some(socket.handle()) {
        return;
    }
    let ending = socket.output.as_ref().is_some_and(|output| output.closing || output.shutdown.is_some());
    let packet = socket.options.packet;
    let Some(bytes) = broadcast.message.framed(packet).filter(|_| !ending && socket.state == State::Connected) else {
        outcomes.dropped += 1;
        return;
    };
    let waiting = socket.output.as_ref().is_some_and(|output| !output.queue.is_empty() || output.transfer.is_some());
    let mut written = 0;
    if !waiting && socket.writable {
        match output::write_once(socket, bytes, work, tally) {
            Ok(n) => written = n,
            Err(errno) => {
                outcomes.dropped += 1;
                socket.output_failed(env, errno, false);
                return;
            }
        }
    }
    if written > 0 || bytes.is_empty() {
        socket.statistics.sent.count(bytes.len());
    }
    if written == bytes.len() {
        outcomes.sent += 1;
        return;
    }
    if let Err(errno) = socket.register() {
        outcomes.dropped += 1;
        socket.output_failed(env, errno, false);
        return;
    }
    if written == 0 && !make_room(env, socket, group, bytes.len(), settings, outcomes) {
        outcomes.dropped += 1;
        return;
    }
    let rest = Held::Message(Rest::new(broadcast.message.clone(), packet, written));
    let queue = &mut socket.output.get_or_insert_with(output::empty).queue;
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
}

/// Sees to it that a message of so many bytes may wait for a member. False if it may not.
fn make_room(
    env: Env,
    socket: &mut Socket,
    group: Handle,
    bytes: usize,
    settings: &Settings,
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
