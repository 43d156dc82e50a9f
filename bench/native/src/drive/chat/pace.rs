//! When messages are published: at random moments, or when all clients have an earlier one.

use std::collections::VecDeque;

use super::super::arrivals::Arrivals;
use super::super::load::{Chat, Said};

/// When messages are published.
#[derive(Debug)]
pub enum Pace {
    /// At random moments, independent of the server, by one of the speakers.
    Random { arrivals: Arrivals, speakers: u32 },
    /// In one room, while fewer messages than the maximum are in flight.
    AtATime(Broadcasts),
}

/// Broadcasts in flight.
#[derive(Debug)]
pub struct Broadcasts {
    most: usize,
    has_begun: bool,
    listeners: u32,
    last: u64,
    under_way: VecDeque<Broadcast>,
}

#[derive(Debug)]
struct Broadcast {
    number: u64,
    begun: u64,
    /// Clients that do not have it yet.
    left: u32,
}

impl Pace {
    pub fn new(chat: &Chat, listeners: u32, now: u64) -> Self {
        match chat.said {
            Said::Rate(rate) => Self::Random {
                arrivals: Arrivals::new(chat.published_per_second(rate, listeners), now),
                speakers: chat.rooms * chat.speakers,
            },
            Said::AtATime(most) => Self::AtATime(Broadcasts {
                most: most as usize,
                has_begun: false,
                listeners,
                last: 0,
                under_way: VecDeque::new(),
            }),
        }
    }

    /// All clients are subscribed; publishing begins.
    pub fn start_at(&mut self, moment: u64) {
        match self {
            Self::Random { arrivals, .. } => arrivals.start_at(moment),
            Self::AtATime(broadcasts) => broadcasts.has_begun = true,
        }
    }

    /// When the next message is due, if that depends on time only.
    pub fn next(&self) -> Option<u64> {
        match self {
            Self::Random { arrivals, .. } => Some(arrivals.next()),
            Self::AtATime(_) => None,
        }
    }

    /// Whether a message can be published because all clients have an earlier one.
    #[inline]
    pub fn has_room(&self) -> bool {
        match self {
            Self::Random { .. } => false,
            Self::AtATime(broadcasts) => broadcasts.has_room(),
        }
    }

    /// The next message that is due: its due time and speaker.
    pub fn due(&mut self, now: u64) -> Option<(u64, u32)> {
        match self {
            Self::Random { arrivals, speakers } => {
                let due = arrivals.next();
                (due <= now).then(|| {
                    let speaker = arrivals.draw(*speakers);
                    arrivals.advance();
                    (due, speaker)
                })
            }
            Self::AtATime(broadcasts) => broadcasts.begin(now).then_some((now, 0)),
        }
    }

    /// A client received a message. Returns whether its delay is measured.
    #[inline]
    pub fn came(&mut self, number: u64) -> bool {
        match self {
            Self::Random { .. } => true,
            Self::AtATime(broadcasts) => broadcasts.came(number),
        }
    }

    /// Gives up broadcasts that have been in flight for longer than `timeout`, and returns their
    /// number.
    pub fn give_up(&mut self, now: u64, timeout: u64) -> usize {
        match self {
            Self::Random { .. } => 0,
            Self::AtATime(Broadcasts { under_way, .. }) => {
                let before = under_way.len();
                under_way.retain(|broadcast| now.saturating_sub(broadcast.begun) <= timeout);
                before - under_way.len()
            }
        }
    }
}

impl Broadcasts {
    fn has_room(&self) -> bool {
        self.has_begun && self.under_way.len() < self.most
    }

    fn begin(&mut self, now: u64) -> bool {
        let has_room = self.has_room();
        if has_room {
            self.last += 1;
            self.under_way.push_back(Broadcast {
                number: self.last,
                begun: now,
                left: self.listeners,
            });
        }
        has_room
    }

    /// Counts a delivery and returns whether it was the last one.
    fn came(&mut self, number: u64) -> bool {
        let Some(at) = self.under_way.iter().position(|one| one.number == number) else {
            return false;
        };
        let broadcast = &mut self.under_way[at];
        broadcast.left -= 1;
        let is_whole = broadcast.left == 0;
        if is_whole {
            self.under_way.remove(at);
        }
        is_whole
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drive::load::Listening;

    fn four_at_a_time(listeners: u32) -> Pace {
        let chat = Chat {
            rooms: 1,
            speakers: 1,
            carrier: Listening::WebSocket,
            slow: 0,
            said: Said::AtATime(4),
            churn: 0,
            size: 128,
        };
        Pace::new(&chat, listeners, 0)
    }

    fn started(listeners: u32) -> Pace {
        let mut pace = four_at_a_time(listeners);
        assert_eq!(pace.due(5), None);
        pace.start_at(10);
        pace
    }

    fn begun(pace: &mut Pace, now: u64) -> usize {
        std::iter::from_fn(|| pace.due(now)).count()
    }

    #[test]
    fn the_next_broadcast_begins_when_everybody_has_one() {
        let mut pace = started(2);
        assert_eq!(pace.next(), None);
        assert_eq!(begun(&mut pace, 10), 4);
        // Both messages for one client, then the second message for the other.
        assert_eq!([1, 2].map(|number| pace.came(number)), [false; 2]);
        assert_eq!(begun(&mut pace, 20), 0);
        assert!(pace.came(2));
        assert_eq!(pace.due(30), Some((30, 0)));
        assert_eq!(pace.due(30), None);
    }

    #[test]
    fn what_does_not_come_is_given_up() {
        let mut pace = started(2);
        assert_eq!(begun(&mut pace, 10), 4);
        assert_eq!(pace.give_up(110, 100), 0);
        assert_eq!(pace.give_up(111, 100), 4);
        assert_eq!(begun(&mut pace, 111), 4);
        // Message 1 was given up.
        assert!(!pace.came(1));
    }
}
