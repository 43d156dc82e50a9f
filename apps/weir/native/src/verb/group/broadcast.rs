//! A message on its way to the members of a group, and what has become of it.

use std::sync::{Arc, PoisonError};

use rustler::env::SavedTerm;
use rustler::{Atom, Binary, Env, LocalPid, OwnedEnv, Term};

use super::find;
use crate::pollset;
use crate::term::atoms;
use crate::term::message::Message;
use crate::value::handle::{Handle, Target};
use crate::value::sync::Mutex;

/// The most bytes of a message: a call that puts a length in front of them stays well under a millisecond.
pub const MESSAGE: usize = 1024 * 1024;

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
    /// Adds those of other members.
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

/// A message on its way.
pub struct Broadcast {
    pub message: Arc<Message>,
    pub sequence: u64,
    /// A member that does not get it.
    pub except: Option<Handle>,
    /// What the caller knows it by.
    pub mark: u64,
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

/// What a broadcast is refused for.
pub enum Refused {
    /// As many as may be are on their way already.
    Busy,
    TooLarge,
    Closed,
}

/// Sends a message to all members but `except`. Returns how many those are. `reference` is told to the calling process
/// when it has been through.
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
    /// Adds what has become of it for some members.
    pub fn count(&self, outcomes: &Outcomes) {
        if let Some(notice) = &self.notice {
            notice.lock().unwrap_or_else(PoisonError::into_inner).outcomes.add(outcomes);
        }
    }

    /// One more is to be through with it before anybody is told: a member that moves, and is in no division that has not been.
    /// The group is locked, and the broadcast is still on its way there. [`tell`] ends that.
    pub fn hold(&self) {
        if let Some(notice) = &self.notice {
            notice.lock().unwrap_or_else(PoisonError::into_inner).divisions += 1;
        }
    }

    /// A division is through with it: `{weir_group, Group, Reference, Outcomes}` to the process that asked, after the last one.
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
pub fn tell(env: Env, handle: Handle, finished: impl IntoIterator<Item = Arc<Broadcast>>) {
    for broadcast in finished {
        broadcast.tell(env, handle);
    }
}
