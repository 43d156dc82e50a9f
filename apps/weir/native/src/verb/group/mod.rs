//! Groups: one message to many sockets; each pollset writes to its own.
//!
//! A group knows its members by pollset (`value::division`), and a member knows its groups. The
//! member's state decides: whether it is a member, and which message it had last. So a slice of
//! members may be outdated when it is served, and still no member gets a message twice, or one
//! from before it joined. Lock order: socket, group, ready list of a pollset.

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

/// Maximum number of groups.
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

/// What happens to a message for a member with a full queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// The oldest messages are dropped to make room.
    DropOldest,
    DropNewest,
    /// Only the latest message waits, always.
    Conflate,
    /// The connection is closed.
    Disconnect,
    /// The member leaves the group; its owner is told the first message that it missed.
    Leave,
}

/// The settings of a group.
#[derive(Clone, Copy)]
pub struct GroupSettings {
    pub policy: Policy,
    /// Limits of the group's messages that may wait for one member, and of their bytes.
    pub max_messages: usize,
    pub max_bytes: usize,
    /// Maximum number of pending messages per pollset.
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
    /// The number of the last broadcast.
    sequence: u64,
    outcomes: Outcomes,
    owner: LocalPid,
    /// Dropping it ends the monitor of the owner.
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

/// Creates a group of the calling process. `None` if there are too many.
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

/// Deletes a group. The members' sockets stay open; output in their queues is still sent, pending
/// messages are dropped.
pub fn delete(env: Env, handle: Handle) {
    let mut finished = Vec::new();
    let live = find(handle).and_then(|mut group| group.live.take());
    // Without the lock, under which the monitor of the owner must not be dropped.
    let Some(mut live) = live else { return };
    for (_, division) in &mut live.divisions {
        finished.extend(division.clear());
    }
    tell(env, handle, finished);
}

/// Makes a connected socket a member, for one message if `once`, and returns the group's settings.
/// It gets all later broadcasts. Returns `None` and does nothing if it is already a member.
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

/// Ends a membership. Messages in the socket's queue are still sent. False if there is none, or if
/// the group is gone, of which the member was not told.
pub fn leave(env: Env, socket: &mut Socket, handle: Handle) -> bool {
    socket.groups.remove(handle) && take_out(env, handle, socket.pollset, socket.handle())
}

/// Ends all single-message memberships of a socket. False if it has had its message and its owner
/// has not been told.
pub fn withdraw(env: Env, socket: &mut Socket) -> bool {
    while let Some(group) = socket.groups.remove_once() {
        take_out(env, group, socket.pollset, socket.handle());
    }
    !socket.served
}

/// Ends the memberships of a member that has had its one message, and tells its owner.
fn served(env: Env, socket: &mut Socket) {
    withdraw(env, socket);
    if socket.reactor {
        socket.served = true;
        socket.enqueue(env);
    } else {
        message::served(env, socket);
    }
}

/// Ends the membership of a member whose queue was full. Messages in the queue are still sent.
fn left(env: Env, socket: &mut Socket, handle: Handle, mark: u64) {
    if socket.groups.remove(handle) {
        take_out(env, handle, socket.pollset, socket.handle());
        message::left(env, socket, handle, mark);
    }
}

/// Ends all memberships of a socket that is no longer connected.
pub fn leave_all(env: Env, socket: &mut Socket) {
    if socket.groups.is_empty() {
        return;
    }
    for group in std::mem::take(&mut socket.groups).groups() {
        take_out(env, group, socket.pollset, socket.handle());
    }
}

/// Removes a member from the group. False if the group is gone.
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

    /// Removes a member. If its pollset has no members left, the pending messages go to
    /// `finished`.
    fn take_out(&mut self, pollset: u16, member: Handle, finished: &mut Vec<Arc<Broadcast>>) {
        let division = self.division(pollset);
        division.leave(member);
        // If a poller is delivering, it finishes them itself, after it has counted their results.
        if division.len() == 0 && !division.serving {
            finished.extend(division.clear());
            self.divisions.retain(|(index, _)| *index != pollset);
        }
    }
}

impl Group {
    /// Number of members; zero if the group was deleted.
    pub fn size(&self) -> usize {
        self.live.iter().flat_map(|live| &live.divisions).map(|(_, division)| division.len()).sum()
    }

    /// The group's owner, state and counters as a map.
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
