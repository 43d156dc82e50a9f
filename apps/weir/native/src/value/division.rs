//! The members of a group on one pollset, and the messages that are on their way to them.

use std::collections::{HashMap, VecDeque};

use super::handle::Handle;

/// Members and messages. The pollset goes through the members for one message after another, in slices.
///
/// `M` is a message; it stays here until the last slice has been delivered, so that a thread that takes a member elsewhere
/// finds what it has not got.
pub struct Division<M> {
    members: Vec<Handle>,
    /// Where a member stands among them.
    places: HashMap<Handle, usize>,
    messages: VecDeque<M>,
    /// Members in front of this have had the first message, or are having it.
    cursor: usize,
    /// The pollset has been told.
    pub scheduled: bool,
    /// A poller is at it. Its successor, which may begin before it has ended, is not to overtake it.
    pub serving: bool,
}

impl<M: Clone> Division<M> {
    /// Nobody and nothing.
    pub fn new() -> Division<M> {
        let (members, places, messages) = (Vec::new(), HashMap::new(), VecDeque::new());
        Division { members, places, messages, cursor: 0, scheduled: false, serving: false }
    }

    /// How many members there are.
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Messages that not every member has had.
    pub fn pending(&self) -> impl Iterator<Item = &M> {
        self.messages.iter()
    }

    /// Whether a handle is a member's.
    pub fn has(&self, member: Handle) -> bool {
        self.places.contains_key(&member)
    }

    /// Adds a member. False if it is one already.
    pub fn join(&mut self, member: Handle) -> bool {
        if self.has(member) {
            return false;
        }
        self.places.insert(member, self.members.len());
        self.members.push(member);
        true
    }

    /// Takes a member out, without those behind the cursor coming before it or the other way round. False if it is none.
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

    /// Adds a message for all who are members now.
    pub fn push(&mut self, message: M) {
        self.messages.push_back(message);
    }

    /// Fills `slice` with the members that come next, and returns the message that is for them; nothing if all is done.
    /// Messages that have been through go to `finished`: the slice before has been delivered.
    /// `limit` is how many members a slice of a message has.
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

    /// Takes all messages: there is nobody for them any more.
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

    /// Goes through all messages; what each member has got.
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
