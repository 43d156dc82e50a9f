//! A queue of arrivals: first in, first out; each is announced once; a closed queue takes nothing.

use std::collections::VecDeque;

/// The queue. Its users lock it.
pub struct Arrivals<T> {
    waiting: VecDeque<T>,
    /// Number of arrivals not announced yet.
    untold: usize,
    closed: bool,
}

impl<T> Default for Arrivals<T> {
    fn default() -> Arrivals<T> {
        Arrivals { waiting: VecDeque::new(), untold: 0, closed: false }
    }
}

impl<T> Arrivals<T> {
    /// Number of waiting arrivals.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Appends an arrival. Returns it if the queue is closed.
    pub fn push(&mut self, arrival: T) -> Option<T> {
        if self.closed {
            return Some(arrival);
        }
        self.waiting.push_back(arrival);
        self.untold += 1;
        None
    }

    /// Takes the oldest arrival.
    pub fn pop(&mut self) -> Option<T> {
        self.waiting.pop_front()
    }

    /// Puts an arrival that was taken back in front. Returns it if the queue has been closed.
    pub fn put_back(&mut self, arrival: T) -> Option<T> {
        if self.closed {
            return Some(arrival);
        }
        self.waiting.push_front(arrival);
        None
    }

    /// Returns how many arrivals to announce now; each counts once.
    pub fn tell(&mut self) -> usize {
        std::mem::take(&mut self.untold)
    }

    /// Announces one arrival again, because the process that came for it does not take it.
    pub fn tell_again(&mut self) {
        self.untold += 1;
    }

    /// Closes the queue, and returns what was waiting.
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
