//! Handles, by which Erlang knows sockets, and targets, by which epoll and ready lists do.

/// A slot of the socket table, with the generation of the socket in it.
///
/// After a close, the slot is reused with the next generation. So late events, messages and calls
/// for the closed socket are recognised. Each VM starts at a different generation, so that handles
/// of another VM are invalid here. A handle fits an immediate integer of the VM (59 bits): it
/// needs no heap and no reference count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Handle(u64);

const SLOT_BITS: u32 = 24;

/// Number of slots: 16 million sockets.
pub const SLOTS: u32 = 1 << SLOT_BITS;

impl Handle {
    /// The handle of `slot` (below [`SLOTS`]) in its `generation`.
    pub fn new(slot: u32, generation: u32) -> Handle {
        debug_assert!(slot < SLOTS);
        Handle(u64::from(generation) << SLOT_BITS | u64::from(slot))
    }

    /// Converts a number from outside. Checks only that it has the form of a handle.
    pub fn from_raw(raw: u64) -> Option<Handle> {
        (raw >> (SLOT_BITS + 32) == 0).then_some(Handle(raw))
    }

    /// The number that represents this handle in Erlang.
    pub fn raw(self) -> u64 {
        self.0
    }

    /// The slot in the table.
    pub fn slot(self) -> u32 {
        (self.0 & u64::from(SLOTS - 1)) as u32
    }

    /// The generation of the socket in the slot.
    pub fn generation(self) -> u32 {
        (self.0 >> SLOT_BITS) as u32
    }
}

/// A connection of a relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Left,
    Right,
}

/// What a pollset visits: the data of epoll events, and the entries of ready lists. Each kind has
/// a table of its own for its handles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    Socket(Handle),
    /// One connection of a relay.
    Relay(Handle, Side),
    /// Messages of a group for its members on this pollset.
    Group(Handle),
    /// A pollset whose process sleeps.
    Pollset(u16),
}

const TARGET_SHIFT: u32 = SLOT_BITS + 32;

impl Target {
    /// The number that represents this target in epoll: the handle, with the kind above its bits.
    pub fn raw(self) -> u64 {
        let (kind, handle) = match self {
            Target::Socket(handle) => (0, handle),
            Target::Relay(handle, Side::Left) => (1, handle),
            Target::Relay(handle, Side::Right) => (2, handle),
            Target::Group(handle) => (3, handle),
            Target::Pollset(index) => (4, Handle(u64::from(index))),
        };
        kind << TARGET_SHIFT | handle.0
    }

    /// Converts a number from epoll back.
    pub fn from_raw(raw: u64) -> Option<Target> {
        let handle = Handle(raw & ((1 << TARGET_SHIFT) - 1));
        match raw >> TARGET_SHIFT {
            0 => Some(Target::Socket(handle)),
            1 => Some(Target::Relay(handle, Side::Left)),
            2 => Some(Target::Relay(handle, Side::Right)),
            3 => Some(Target::Group(handle)),
            4 => Some(Target::Pollset(handle.0 as u16)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_survive_packing() {
        for slot in [0, 1, 4711, SLOTS - 1] {
            for generation in [0, 1, u32::MAX] {
                let handle = Handle::new(slot, generation);
                assert_eq!((handle.slot(), handle.generation()), (slot, generation));
                assert_eq!(Handle::from_raw(handle.raw()), Some(handle));
            }
        }
    }

    #[test]
    fn fits_an_immediate_integer() {
        assert!(Handle::new(SLOTS - 1, u32::MAX).raw() < 1 << 59);
    }

    #[test]
    fn targets_survive_packing() {
        let handle = Handle::new(SLOTS - 1, u32::MAX);
        let sides = [Target::Relay(handle, Side::Left), Target::Relay(handle, Side::Right)];
        for target in [Target::Socket(handle), Target::Group(handle)].into_iter().chain(sides) {
            assert_eq!(Target::from_raw(target.raw()), Some(target));
        }
        assert_eq!(Target::from_raw(u64::MAX), None);
    }

    #[test]
    fn numbers_out_of_range_are_refused() {
        assert_eq!(Handle::from_raw(1 << 56), None);
        assert_eq!(Handle::from_raw(u64::MAX), None);
    }
}
