//! A message to the members of a group, and its results.

use std::sync::{Arc, PoisonError};

use rustler::env::SavedTerm;
use rustler::{Atom, Binary, Env, LocalPid, OwnedEnv, Term};

use super::find;
use crate::pollset;
use crate::term::atoms;
use crate::term::message::Message;
use crate::value::handle::{Handle, Target};
use crate::value::sync::Mutex;

/// Maximum size of a message in bytes. A call that copies it behind its length takes well under 1
/// ms.
pub const MESSAGE: usize = 1024 * 1024;

/// Counts of results, one for each member and message.
#[derive(Clone, Copy, Default)]
pub struct Outcomes {
    /// The kernel has taken it.
    pub sent: u64,
    /// It waits in the member's queue.
    pub queued: u64,
    /// It was dropped, at once or after waiting.
    pub dropped: u64,
    /// Members that were closed because of it.
    pub disconnected: u64,
}

impl Outcomes {
    /// Adds the counts of other members.
    pub fn add(&mut self, other: &Outcomes) {
        self.sent += other.sent;
        self.queued += other.queued;
        self.dropped += other.dropped;
        self.disconnected += other.disconnected;
    }

    /// The counts with their names.
    pub fn pairs(&self) -> [(Atom, u64); 4] {
        [
            (atoms::sent(), self.sent),
            (atoms::queued(), self.queued),
            (atoms::dropped(), self.dropped),
            (atoms::disconnected(), self.disconnected),
        ]
    }
}

/// A pending message.
pub struct Broadcast {
    pub message: Arc<Message>,
    pub sequence: u64,
    /// A member that does not get it.
    pub except: Option<Handle>,
    /// The caller's number for it.
    pub mark: u64,
    notice: Option<Mutex<Notice>>,
}

/// The process that is notified when all members have been served, and the counts so far.
struct Notice {
    pid: LocalPid,
    environment: OwnedEnv,
    reference: SavedTerm,
    /// Divisions that are not finished yet.
    divisions: usize,
    outcomes: Outcomes,
}

/// Why a broadcast is refused.
pub enum Refused {
    /// The backlog of a division is full.
    Busy,
    TooLarge,
    Closed,
}

/// Sends a message to all members but `except`. Returns their number. If there is a `reference`,
/// the calling process gets it in a message when all members have been served.
pub fn send(
    env: Env,
    handle: Handle,
    binary: &Binary,
    except: Option<Handle>,
    reference: Option<Term>,
    mark: u64,
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
    let broadcast = Arc::new(Broadcast { message, sequence: live.sequence, except, mark, notice });
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

impl Broadcast {
    /// Adds the counts of some members.
    pub fn count(&self, outcomes: &Outcomes) {
        if let Some(notice) = &self.notice {
            notice.lock().unwrap_or_else(PoisonError::into_inner).outcomes.add(outcomes);
        }
    }

    /// Delays the notice by one more division, for a member that moves and is in no unfinished
    /// division. The caller holds the lock of the group, and the broadcast is still pending there.
    /// [`tell`] ends the delay.
    pub fn hold(&self) {
        if let Some(notice) = &self.notice {
            notice.lock().unwrap_or_else(PoisonError::into_inner).divisions += 1;
        }
    }

    /// Notes that a division is finished. After the last one, sends `{weir_group, Group,
    /// Reference, Outcomes}` to the process that asked.
    fn tell(&self, env: Env, handle: Handle) {
        let Some(notice) = &self.notice else { return };
        let mut notice = notice.lock().unwrap_or_else(PoisonError::into_inner);
        notice.divisions = notice.divisions.saturating_sub(1);
        if notice.divisions == 0 {
            let reference = notice.environment.run(|own| notice.reference.load(own).in_env(env));
            let group = (atoms::weir_group(), handle.raw());
            if let Ok(outcomes) = Term::map_from_pairs(env, &notice.outcomes.pairs()) {
                // If that process has died, it needs no notice.
                let _ = env.send(&notice.pid, (atoms::weir_group(), group, reference, outcomes));
            }
        }
    }
}

/// Notes that messages are finished in a division, and notifies the processes that asked.
pub fn tell(env: Env, handle: Handle, finished: impl IntoIterator<Item = Arc<Broadcast>>) {
    for broadcast in finished {
        broadcast.tell(env, handle);
    }
}
