//! The groups that a socket is a member of.

use super::handle::Handle;

/// The membership of a socket in a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Membership {
    pub group: Handle,
    /// The last message that the member has received; older ones are not for it.
    pub last: u64,
    /// It ends after one message, together with all other `once` memberships of the socket.
    pub once: bool,
}

/// All memberships of a socket. Most sockets are in one group at most; the first membership is
/// stored inline, which avoids a cache miss per message.
#[derive(Default)]
pub struct Memberships {
    first: Option<Membership>,
    others: Vec<Membership>,
}

impl Memberships {
    /// Whether there are no memberships.
    pub fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    /// The membership in a group.
    pub fn of(&mut self, group: Handle) -> Option<&mut Membership> {
        match &mut self.first {
            Some(first) if first.group == group => Some(first),
            _ => self.others.iter_mut().find(|membership| membership.group == group),
        }
    }

    /// Adds a membership. Before the list grows, those for which `is_current` is false are
    /// removed.
    pub fn add(&mut self, membership: Membership, mut is_current: impl FnMut(Handle) -> bool) {
        if self.first.is_none() {
            self.first = Some(membership);
            return;
        }
        if self.others.len() == self.others.capacity() {
            self.others.retain(|other| is_current(other.group));
        }
        self.others.push(membership);
    }

    /// Removes the membership in a group. False if there is none.
    pub fn remove(&mut self, group: Handle) -> bool {
        if self.first.is_some_and(|first| first.group == group) {
            self.first = self.others.pop();
        } else if let Some(at) = self.others.iter().position(|membership| membership.group == group) {
            self.others.swap_remove(at);
        } else {
            return false;
        }
        if self.others.is_empty() {
            self.others = Vec::new();
        }
        true
    }

    /// Removes one `once` membership, and returns its group.
    pub fn remove_once(&mut self) -> Option<Handle> {
        let once = self.first.iter().chain(&self.others).find(|membership| membership.once)?.group;
        self.remove(once);
        Some(once)
    }

    /// The groups.
    pub fn groups(&self) -> impl Iterator<Item = Handle> {
        self.first.iter().chain(&self.others).map(|membership| membership.group)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn membership(slot: u32, last: u64) -> Membership {
        Membership { group: Handle::new(slot, 0), last, once: false }
    }

    #[test]
    fn what_was_added_is_there_until_it_is_removed() {
        let mut all = Memberships::default();
        assert!(all.is_empty());
        for slot in 0..5 {
            all.add(membership(slot, u64::from(slot)), |_| true);
        }
        for slot in [0, 3, 4, 1, 2] {
            let group = Handle::new(slot, 0);
            assert_eq!(all.of(group).copied(), Some(membership(slot, u64::from(slot))));
            assert!(all.remove(group) && !all.remove(group));
            assert_eq!(all.of(group), None);
        }
        assert!(all.is_empty());
        assert_eq!(all.others.capacity(), 0);
    }

    #[test]
    fn those_for_one_message_go_together_and_the_others_stay() {
        let mut all = Memberships::default();
        for slot in 0..6 {
            all.add(Membership { once: slot % 2 == 0, ..membership(slot, 0) }, |_| true);
        }
        let mut gone: Vec<u32> = std::iter::from_fn(|| all.remove_once()).map(|group| group.slot()).collect();
        gone.sort_unstable();
        assert_eq!(gone, [0, 2, 4]);
        assert_eq!(all.groups().count(), 3);
    }

    #[test]
    fn those_of_deleted_groups_do_not_pile_up() {
        let mut all = Memberships::default();
        for slot in 0..10_000 {
            all.add(membership(slot, 0), |_| false);
        }
        assert!(all.groups().count() < 100);
    }
}
