//! A model of a group, reduced to what determines the order of messages: the lock over its
//! divisions, and members that know their last message. The functions correspond to those of
//! `../src/verb/group`.

use crate::division::Division;
use crate::handle::Handle;
use crate::sync::{Mutex, MutexGuard};

/// A socket in at most one group.
#[derive(Default)]
pub struct Member {
    pollset: usize,
    /// The last message that it has received, while it is a member.
    last: Option<u32>,
    /// Received messages, in order.
    pub got: Vec<u32>,
}

/// A group with members on two pollsets. Messages are numbers, from 1.
pub struct Group {
    members: Vec<Mutex<Member>>,
    live: Mutex<Live>,
}

struct Live {
    divisions: [Division<u32>; 2],
    sequence: u32,
}

impl Live {
    fn take_out(&mut self, pollset: usize, member: usize) {
        let division = &mut self.divisions[pollset];
        division.leave(handle(member));
        if division.len() == 0 && !division.serving {
            division.clear().for_each(drop);
        }
    }
}

fn handle(member: usize) -> Handle {
    Handle::new(member as u32, 0)
}

fn give(member: &mut Member, message: u32) {
    if let Some(last) = &mut member.last
        && *last < message
    {
        *last = message;
        member.got.push(message);
    }
}

impl Group {
    /// Creates a group and `sockets` sockets on the first pollset, which may join.
    pub fn new(sockets: usize) -> Group {
        let divisions = [Division::new(), Division::new()];
        Group {
            members: (0..sockets).map(|_| Mutex::new(Member::default())).collect(),
            live: Mutex::new(Live { divisions, sequence: 0 }),
        }
    }

    /// Locks a socket.
    pub fn member(&self, member: usize) -> MutexGuard<'_, Member> {
        self.members[member].lock().expect("no panic")
    }

    fn live(&self) -> MutexGuard<'_, Live> {
        self.live.lock().expect("no panic")
    }

    /// Makes a socket a member. Returns the last message that is not for it.
    pub fn join(&self, member: usize) -> u32 {
        let mut socket = self.member(member);
        let mut live = self.live();
        assert!(live.divisions[socket.pollset].join(handle(member)));
        socket.last = Some(live.sequence);
        live.sequence
    }

    /// Ends a membership.
    pub fn leave(&self, member: usize) {
        let mut socket = self.member(member);
        if socket.last.take().is_some() {
            self.live().take_out(socket.pollset, member);
        }
    }

    /// Moves a member to the other pollset. It gets the pending messages of the old one at once.
    pub fn move_over(&self, member: usize) {
        let mut socket = self.member(member);
        let from = socket.pollset;
        socket.pollset = 1 - from;
        let mut live = self.live();
        let pending: Vec<u32> = live.divisions[from].pending().copied().collect();
        live.take_out(from, member);
        live.divisions[1 - from].join(handle(member));
        drop(live);
        for message in pending {
            give(&mut socket, message);
        }
    }

    /// Sends the next message to all members.
    pub fn broadcast(&self) {
        let mut live = self.live();
        live.sequence += 1;
        let message = live.sequence;
        for division in &mut live.divisions {
            if division.len() > 0 {
                division.push(message);
            }
        }
    }

    /// A poller's turn: serves the members on its pollset, one at a time.
    pub fn serve(&self, pollset: usize) {
        let (mut slice, mut finished, mut begins) = (Vec::new(), Vec::new(), true);
        loop {
            let mut live = self.live();
            let division = &mut live.divisions[pollset];
            if begins && division.serving {
                return;
            }
            begins = false;
            let next = division.next(&mut slice, |_| 1, &mut finished);
            division.serving = next.is_some();
            drop(live);
            let Some(message) = next else { return };
            for member in &slice {
                let mut socket = self.member(member.slot() as usize);
                if socket.pollset == pollset {
                    give(&mut socket, message);
                }
            }
        }
    }
}
