//! Groups: one message to many sockets, each written to by its own pollset.
//!
//! A group knows its members by pollset (`value::division`), a member its groups. What decides is the member: whether it is
//! one, and which message it had last. So a slice of members may be out of date when it is served, and nobody gets a
//! message twice or one from before he came. Locks are taken in the order socket, group, ready list of a pollset.

pub mod broadcast;
pub mod delivery;

use std::sync::Arc;

use rustler::{Encoder, Env, LocalPid, Term};

use self::broadcast::{Broadcast, Outcomes, tell};
use crate::kernel::scheduler;
use crate::socket::message;
use crate::socket::owner::DeathWatch;
use crate::socket::{Reason, Socket, State};
use crate::term::atoms;
use crate::term::resource::ResourceArc;
use crate::value::division::Division;
use crate::value::handle::{Handle, Target};
use crate::value::membership::Membership;
use crate::value::shared::Shared;
use crate::value::slots::{Locked, Lookup, Occupant, Slots};
use crate::value::sync::Mutex;
use crate::value::vacancies::Common;

/// Groups that there can be.
const GROUPS: usize = 65_536;
const CHUNK: usize = 256;

pub static ALL: Shared<Slots<Group, { GROUPS / CHUNK }, CHUNK>> = Shared::new(Slots::new(Mutex::new(Common::new())));

/// Finds the group of a handle.
pub fn lookup(handle: Handle) -> Lookup<'static, Group> {
    ALL.lookup(handle)
}

fn find(handle: Handle) -> Option<Locked<'static, Group>> {
    ALL.find(handle)
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
    /// The member leaves the group, and its owner is told which message was the first that it has not had.
    Leave,
}

/// What a group is made with.
#[derive(Clone, Copy)]
pub struct GroupSettings {
    pub policy: Policy,
    /// Messages of the group, and their bytes, that may wait for one member.
    pub max_messages: usize,
    pub max_bytes: usize,
    /// Messages that may be on their way to the members of one pollset.
    pub backlog: usize,
}

/// A group, in its slot of the table, under the slot's lock.
pub struct Group {
    slot: u32,
    generation: u32,
    live: Option<Box<Live>>,
}

struct Live {
    settings: GroupSettings,
    divisions: Vec<(u16, Division<Arc<Broadcast>>)>,
    /// Of the last broadcast.
    sequence: u64,
    outcomes: Outcomes,
    owner: LocalPid,
    /// The monitor of the owner ends with this.
    _watch: ResourceArc<DeathWatch>,
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

    fn here() -> usize {
        scheduler::number().into()
    }
}

/// Makes a group of the calling process. Nothing when there are as many as there can be.
pub fn new(env: Env, settings: GroupSettings) -> Option<Handle> {
    let mut group = ALL.allocate()?;
    let handle = group.handle();
    group.live = Some(Box::new(Live {
        settings,
        divisions: Vec::new(),
        sequence: 0,
        outcomes: Outcomes::default(),
        owner: env.pid(),
        _watch: DeathWatch::of_caller(env, Target::Group(handle)),
    }));
    Some(handle)
}

/// Deletes a group. Its members stay what they are; what waits for them still goes out, what is on its way does not.
pub fn delete(env: Env, handle: Handle) {
    let mut finished = Vec::new();
    let live = find(handle).and_then(|mut group| group.live.take());
    // Without the lock: what watches the owner must not be dropped under it.
    let Some(mut live) = live else { return };
    for (_, division) in &mut live.divisions {
        finished.extend(division.clear());
    }
    tell(env, handle, finished);
}

/// Makes a connected socket a member, `once` for one message, and returns how the group is set. It gets what is broadcast from
/// now on. Nothing happens, and nothing is returned, if it is a member.
fn join(socket: &mut Socket, handle: Handle, once: bool) -> Result<Option<GroupSettings>, Reason> {
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
        return Ok(None);
    }
    let (membership, settings) = (Membership { group: handle, last: live.sequence, once }, live.settings);
    drop(group);
    socket.groups.add(membership, |group| find(group).is_some());
    Ok(Some(settings))
}

/// Ends a membership. What waits for the member still goes out. False if there is none, or it has ended with the group, which the
/// member does not know of.
pub fn leave(env: Env, socket: &mut Socket, handle: Handle) -> bool {
    socket.groups.remove(handle) && take_out(env, handle, socket.pollset, socket.handle())
}

/// Ends all memberships of a socket that are for one message. False if it has had that, and its owner is not told yet.
pub fn withdraw(env: Env, socket: &mut Socket) -> bool {
    while let Some(group) = socket.groups.remove_once() {
        take_out(env, group, socket.pollset, socket.handle());
    }
    !socket.served
}

/// A member has had its one message: that was its membership, and its owner is told.
fn served(env: Env, socket: &mut Socket) {
    withdraw(env, socket);
    if socket.reactor {
        socket.served = true;
        socket.enqueue(env);
    } else {
        message::served(env, socket);
    }
}

/// A member whose queue was full is a member no more. What waits for it still goes out.
fn left(env: Env, socket: &mut Socket, handle: Handle, mark: u64) {
    if socket.groups.remove(handle) {
        take_out(env, handle, socket.pollset, socket.handle());
        message::left(env, socket, handle, mark);
    }
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

/// False if the group is gone.
fn take_out(env: Env, handle: Handle, pollset: u16, member: Handle) -> bool {
    let mut finished = Vec::new();
    let is_there = match find(handle) {
        Some(mut group) => group.live.as_mut().map(|live| live.take_out(pollset, member, &mut finished)).is_some(),
        None => false,
    };
    tell(env, handle, finished);
    is_there
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
        // A poller that is at it finishes them itself, when it has counted what became of them.
        if division.len() == 0 && !division.serving {
            finished.extend(division.clear());
            self.divisions.retain(|(index, _)| *index != pollset);
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
