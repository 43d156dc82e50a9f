//! `{active, _}`: whether data goes to the owner as messages, and how many.

/// The active mode of a socket, as `inet:setopts/2` documents it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Active {
    /// `false`: data waits for `recv`.
    Passive,
    /// `once`: one message, then passive, without notice.
    Once,
    /// `true`: every piece of data is a message.
    Always,
    /// `N` more messages, then `tcp_passive`. Never zero.
    Count(i16),
}

/// Result of adding a count to a mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    /// The new mode.
    Mode(Active),
    /// The count is zero or below: the socket becomes passive, and its owner gets `tcp_passive`.
    Exhausted,
    /// The sum exceeds 16 bits (`einval`); the mode stays.
    OutOfRange,
}

impl Active {
    /// Whether the modes are equal apart from the count.
    pub fn is_same_kind(self, other: Active) -> bool {
        std::mem::discriminant(&self) == std::mem::discriminant(&other)
    }

    /// Adds the `N` of `{active, N}`: to an existing count, or to zero in any other mode.
    pub fn add(self, n: i16) -> Counted {
        let before = match self {
            Active::Count(count) => i32::from(count),
            _ => 0,
        };
        match i16::try_from(before + i32::from(n)) {
            Err(_) => Counted::OutOfRange,
            Ok(sum) if sum <= 0 => Counted::Exhausted,
            Ok(sum) => Counted::Mode(Active::Count(sum)),
        }
    }

    /// The mode after one more message, and whether the owner gets `tcp_passive`.
    pub fn delivered(self) -> (Active, bool) {
        match self {
            Active::Always => (Active::Always, false),
            Active::Count(n) if n > 1 => (Active::Count(n - 1), false),
            Active::Count(_) => (Active::Passive, true),
            Active::Once | Active::Passive => (Active::Passive, false),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_add_up() {
        assert_eq!(Active::Passive.add(3), Counted::Mode(Active::Count(3)));
        assert_eq!(Active::Count(3).add(-1), Counted::Mode(Active::Count(2)));
        assert_eq!(Active::Once.add(5), Counted::Mode(Active::Count(5)));
        assert_eq!(Active::Always.add(2), Counted::Mode(Active::Count(2)));
    }

    #[test]
    fn zero_and_below_are_exhausted() {
        assert_eq!(Active::Passive.add(0), Counted::Exhausted);
        assert_eq!(Active::Count(2).add(-2), Counted::Exhausted);
        assert_eq!(Active::Count(2).add(-5), Counted::Exhausted);
        assert_eq!(Active::Count(2).add(i16::MIN), Counted::Exhausted);
    }

    #[test]
    fn sums_beyond_16_bits_are_refused() {
        assert_eq!(Active::Count(i16::MAX).add(1), Counted::OutOfRange);
        assert_eq!(Active::Count(1).add(i16::MAX), Counted::OutOfRange);
    }

    #[test]
    fn n_messages_then_passive() {
        let mut mode = Active::Count(3);
        let mut told = Vec::new();
        for _ in 0..3 {
            let (next, passive) = mode.delivered();
            mode = next;
            told.push(passive);
        }
        assert_eq!((mode, told), (Active::Passive, vec![false, false, true]));
    }

    #[test]
    fn once_goes_passive_without_notice() {
        assert_eq!(Active::Once.delivered(), (Active::Passive, false));
        assert_eq!(Active::Always.delivered(), (Active::Always, false));
    }
}
