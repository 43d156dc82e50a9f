//! Names: what Erlang holds of a socket, and what epoll and ready lists say is ready.

/// A slot of the socket table together with the generation of the socket that lives there.
///
/// A slot is used again after a close, with the next generation, so that a late event, message or call for the closed
/// socket finds that it is not meant. Each VM counts generations from another number on, so that a handle of another VM is
/// no handle here. The number fits an immediate integer of the VM (59 bits): a message that carries
/// it needs no heap beyond its tuple, and no reference count is touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Handle(u64);

const SLOT_BITS: u32 = 24;

/// Slots that a handle can name: 16 million sockets.
pub const SLOTS: u32 = 1 << SLOT_BITS;

impl Handle {
    /// The handle of `slot` (below [`SLOTS`]) in its `generation`.
    pub fn new(slot: u32, generation: u32) -> Handle {
        debug_assert!(slot < SLOTS);
        Handle(u64::from(generation) << SLOT_BITS | u64::from(slot))
    }

    /// The handle behind a number from outside; nothing is known of it but that it has the form of one.
    pub fn from_raw(raw: u64) -> Option<Handle> {
        (raw >> (SLOT_BITS + 32) == 0).then_some(Handle(raw))
    }

    /// The number that stands for this handle in Erlang.
    pub fn raw(self) -> u64 {
        self.0
    }

    /// The slot of the table.
    pub fn slot(self) -> u32 {
        (self.0 & u64::from(SLOTS - 1)) as u32
    }

    /// Which of the sockets that have lived in the slot.
    pub fn generation(self) -> u32 {
        (self.0 >> SLOT_BITS) as u32
    }
}

/// Which of the two connections of a relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Left,
    Right,
}

/// What a pollset visits: epoll's event data and the entries of ready lists. Beside sockets, that is what else has
/// descriptors or work of its own, each named by a handle of its own table.
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
    /// The number that stands for this target in epoll: that of the handle, with the kind above its bits.
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

    /// The target behind a number that epoll gives back.
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
