//! A table of connections in which late events do no harm.

use crate::poller::{Lane, Token};

/// Connections by token. A reused slot gets a new generation, so an event or timer of a removed
/// connection finds nothing.
#[derive(Debug)]
pub struct Connections<T> {
    lane: Lane,
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
}

#[derive(Debug)]
struct Slot<T> {
    generation: u32,
    connection: Option<T>,
}

impl<T> Connections<T> {
    /// An empty table whose tokens have the lane `lane`.
    pub fn new(lane: Lane) -> Self {
        Self {
            lane,
            slots: Vec::new(),
            free: Vec::new(),
        }
    }

    /// The token that the next [`insert`](Self::insert) will use. A socket is registered before
    /// its entry exists.
    pub fn next_token(&self) -> Token {
        match self.free.last() {
            Some(&index) => Token::new(self.lane, index, self.slots[index as usize].generation),
            None => Token::new(self.lane, self.slots.len() as u32, 0),
        }
    }

    /// Inserts a connection and returns its token.
    pub fn insert(&mut self, connection: T) -> Token {
        let token = self.next_token();
        match self.free.pop() {
            Some(index) => self.slots[index as usize].connection = Some(connection),
            None => self.slots.push(Slot {
                generation: 0,
                connection: Some(connection),
            }),
        }
        token
    }

    /// The connection of a token, unless it was removed. The token may have another lane (that of
    /// a second descriptor).
    #[inline]
    pub fn get_mut(&mut self, token: Token) -> Option<&mut T> {
        let slot = self.slots.get_mut(token.index() as usize)?;
        if Token::new(self.lane, token.index(), slot.generation) != token.in_lane(self.lane) {
            return None;
        }
        slot.connection.as_mut()
    }

    /// The number of slots, including free ones.
    pub fn places(&self) -> u32 {
        self.slots.len() as u32
    }

    /// The connection in a slot below [`places`](Self::places) and its token, unless the slot is
    /// free.
    #[inline]
    pub fn at_mut(&mut self, index: u32) -> Option<(Token, &mut T)> {
        let slot = &mut self.slots[index as usize];
        let token = Token::new(self.lane, index, slot.generation);
        Some((token, slot.connection.as_mut()?))
    }

    /// Removes a connection.
    pub fn remove(&mut self, token: Token) -> Option<T> {
        self.get_mut(token)?;
        let slot = &mut self.slots[token.index() as usize];
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(token.index());
        slot.connection.take()
    }

    /// The number of connections.
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Whether the table is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All connections with their tokens.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (Token, &mut T)> {
        let lane = self.lane;
        self.slots
            .iter_mut()
            .enumerate()
            .filter_map(move |(index, slot)| {
                let token = Token::new(lane, index as u32, slot.generation);
                Some((token, slot.connection.as_mut()?))
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_token_finds_nothing() {
        let mut table = Connections::new(1);
        let first = table.insert("first");
        assert_eq!(table.remove(first), Some("first"));
        let second = table.insert("second");
        assert_eq!(first.index(), second.index());
        assert_eq!(table.get_mut(first), None);
        assert_eq!(table.remove(first), None);
        assert_eq!(table.get_mut(second), Some(&mut "second"));
        assert_eq!(table.len(), 1);
    }

    #[test]
    fn the_next_token_is_the_one_that_insert_gives() {
        let mut table = Connections::new(1);
        for _ in 0..3 {
            let expected = table.next_token();
            assert_eq!(table.insert(()), expected);
        }
        table.remove(Token::new(1, 1, 0));
        let expected = table.next_token();
        assert_eq!(table.insert(()), expected);
        assert_eq!(expected, Token::new(1, 1, 1));
    }

    #[test]
    fn another_lane_names_the_same_connection() {
        let mut table = Connections::new(1);
        let token = table.insert(5);
        assert_eq!(table.get_mut(token.in_lane(2)), Some(&mut 5));
    }

    #[test]
    fn iteration_skips_what_is_gone() {
        let mut table = Connections::new(1);
        let tokens: Vec<_> = (0..4).map(|n| table.insert(n)).collect();
        table.remove(tokens[1]);
        let seen: Vec<_> = table.iter_mut().map(|(token, n)| (token, *n)).collect();
        assert_eq!(seen, [(tokens[0], 0), (tokens[2], 2), (tokens[3], 3)]);
        assert_eq!(table.places(), 4);
        assert_eq!(table.at_mut(1), None);
        assert_eq!(table.at_mut(2), Some((tokens[2], &mut 2)));
        assert!(!table.is_empty());
    }
}
