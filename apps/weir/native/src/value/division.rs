//! The members of a group on one pollset, and their pending messages.

use std::collections::{HashMap, VecDeque};

use super::handle::Handle;

/// Members and messages. The pollset delivers one message after another, in slices of members.
///
/// `M` is a message. It stays here until its last slice has been delivered, so that a thread that
/// moves a member elsewhere finds the messages that the member has not received.
pub struct Division<M> {
    members: Vec<Handle>,
    /// Index of each member in `members`.
    places: HashMap<Handle, usize>,
    messages: VecDeque<M>,
    /// The members before this index have the first message, or are getting it now.
    cursor: usize,
    /// The pollset has been notified.
    pub scheduled: bool,
    /// A poller is delivering. If its successor starts before it has finished, the successor must
    /// not overtake it.
    pub serving: bool,
}

impl<M: Clone> Division<M> {
    /// A division without members and messages.
    pub fn new() -> Division<M> {
        let (members, places, messages) = (Vec::new(), HashMap::new(), VecDeque::new());
        Division { members, places, messages, cursor: 0, scheduled: false, serving: false }
    }

    /// Number of members.
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Messages that not every member has received.
    pub fn pending(&self) -> impl Iterator<Item = &M> {
        self.messages.iter()
    }

    /// Whether `member` is a member.
    pub fn has(&self, member: Handle) -> bool {
        self.places.contains_key(&member)
    }

    /// Adds a member. False if it already is one.
    pub fn join(&mut self, member: Handle) -> bool {
        if self.has(member) {
            return false;
        }
        self.places.insert(member, self.members.len());
        self.members.push(member);
        true
    }

    /// Removes a member, and keeps the others on their side of the cursor. False if it is no
    /// member.
    pub fn leave(&mut self, member: Handle) -> bool {
        let Some(mut place) = self.places.remove(&member) else {
            return false;
        };
        if place < self.cursor {
            self.cursor -= 1;
            self.put(self.cursor, place);
            place = self.cursor;
        }
        let last = self.members.len() - 1;
        self.put(last, place);
        self.members.pop();
        true
    }

    /// Overwrites the member at `to` with the one at `from`.
    fn put(&mut self, from: usize, to: usize) {
        if from != to {
            let member = self.members[from];
            self.members[to] = member;
            self.places.insert(member, to);
        }
    }

    /// Adds a message for all current members.
    pub fn push(&mut self, message: M) {
        self.messages.push_back(message);
    }

    /// Fills `slice` with the next members, and returns the message for them; `None` if nothing is
    /// pending. Messages that all members have go to `finished`, so the caller must have delivered
    /// the previous slice. `limit` gives the number of members in a slice of a message.
    pub fn next(&mut self, slice: &mut Vec<Handle>, limit: impl Fn(&M) -> usize, finished: &mut Vec<M>) -> Option<M> {
        slice.clear();
        while self.cursor >= self.members.len() {
            self.cursor = 0;
            finished.push(self.messages.pop_front()?);
        }
        let message = self.messages.front()?.clone();
        let end = self.members.len().min(self.cursor + limit(&message));
        slice.extend_from_slice(&self.members[self.cursor..end]);
        self.cursor = end;
        Some(message)
    }

    /// Takes all messages, because no members are left.
    pub fn clear(&mut self) -> impl Iterator<Item = M> {
        self.cursor = 0;
        std::mem::take(&mut self.messages).into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(slot: u32) -> Handle {
        Handle::new(slot, 0)
    }

    /// Delivers all messages. Returns which member got which message.
    fn deliver(
        division: &mut Division<u32>,
        limit: usize,
        mut meanwhile: impl FnMut(&mut Division<u32>),
    ) -> Vec<(u32, u32)> {
        let (mut slice, mut finished, mut got) = (Vec::new(), Vec::new(), Vec::new());
        while let Some(message) = division.next(&mut slice, |_| limit, &mut finished) {
            got.extend(slice.iter().map(|member| (message, member.slot())));
            meanwhile(division);
        }
        got
    }

    #[test]
    fn every_member_gets_every_message_in_order() {
        let mut division = Division::new();
        assert!((0..10).all(|slot| division.join(member(slot))));
        assert!(!division.join(member(3)));
        division.push(1);
        division.push(2);
        let got = deliver(&mut division, 3, |_| ());
        let expected: Vec<(u32, u32)> = (1..=2).flat_map(|message| (0..10).map(move |slot| (message, slot))).collect();
        assert_eq!(got, expected);
        assert_eq!(division.pending().count(), 0);
    }

    #[test]
    fn leaving_costs_nobody_a_message_and_gives_nobody_two() {
        for leaver in 0..10 {
            for after in 0..4 {
                let mut division = Division::new();
                (0..10).for_each(|slot| {
                    division.join(member(slot));
                });
                division.push(1);
                let mut slices = 0;
                let got = deliver(&mut division, 3, |division| {
                    slices += 1;
                    if slices == after + 1 {
                        assert!(division.leave(member(leaver)));
                        assert!(!division.leave(member(leaver)));
                    }
                });
                for slot in (0..10).filter(|&slot| slot != leaver) {
                    assert_eq!(got.iter().filter(|&&(_, to)| to == slot).count(), 1, "{leaver} {after} {slot}");
                }
            }
        }
    }

    #[test]
    fn a_message_waits_for_its_last_slice() {
        let mut division = Division::new();
        division.join(member(1));
        division.push(7);
        let (mut slice, mut finished) = (Vec::new(), Vec::new());
        assert_eq!(division.next(&mut slice, |_| 8, &mut finished), Some(7));
        assert_eq!(division.pending().count(), 1);
        assert_eq!(division.next(&mut slice, |_| 8, &mut finished), None);
        assert_eq!((division.pending().count(), finished), (0, vec![7]));
    }
}
