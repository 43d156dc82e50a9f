//! What waits in a queue for somebody to take it: in order, told of once, and nothing any more when the queue is closed.

use std::collections::VecDeque;

/// What waits. It is used under a lock.
pub struct Arrivals<T> {
    waiting: VecDeque<T>,
    /// Those of them that have not been told of.
    untold: usize,
    closed: bool,
}

impl<T> Default for Arrivals<T> {
    fn default() -> Arrivals<T> {
        Arrivals { waiting: VecDeque::new(), untold: 0, closed: false }
    }
}

impl<T> Arrivals<T> {
    /// How many wait.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Makes one wait behind the others. It is the caller's again if the queue is closed.
    pub fn push(&mut self, arrival: T) -> Option<T> {
        if self.closed {
            return Some(arrival);
        }
        self.waiting.push_back(arrival);
        self.untold += 1;
        None
    }

    /// Takes the one that has waited longest.
    pub fn pop(&mut self) -> Option<T> {
        self.waiting.pop_front()
    }

    /// Puts one that was taken back in front. It is the caller's again if the queue was closed since.
    pub fn put_back(&mut self, arrival: T) -> Option<T> {
        if self.closed {
            return Some(arrival);
        }
        self.waiting.push_front(arrival);
        None
    }

    /// How many are to be told of, each once.
    pub fn tell(&mut self) -> usize {
        std::mem::take(&mut self.untold)
    }

    /// Has one of those that wait be told of once more: who came for it does not take it.
    pub fn tell_again(&mut self) {
        self.untold += 1;
    }

    /// Closes the queue, and returns what waits in it.
    pub fn close(&mut self) -> VecDeque<T> {
        self.closed = true;
        self.untold = 0;
        std::mem::take(&mut self.waiting)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_come_first_served() {
        let mut arrivals = Arrivals::default();
        assert!((1..=3).all(|number| arrivals.push(number).is_none()));
        assert_eq!((arrivals.tell(), arrivals.tell(), arrivals.len()), (3, 0, 3));
        let first = arrivals.pop().expect("three wait");
        assert_eq!(arrivals.put_back(first), None);
        assert_eq!([arrivals.pop(), arrivals.pop(), arrivals.pop(), arrivals.pop()], [Some(1), Some(2), Some(3), None]);
    }

    #[test]
    fn nothing_waits_in_a_closed_queue() {
        let mut arrivals = Arrivals::default();
        assert!((1..=3).all(|number| arrivals.push(number).is_none()));
        let taken = arrivals.pop().expect("three wait");
        assert_eq!(arrivals.close(), [2, 3]);
        assert_eq!(arrivals.put_back(taken), Some(1));
        assert_eq!(arrivals.push(4), Some(4));
        assert_eq!((arrivals.pop(), arrivals.tell()), (None, 0));
    }
}
