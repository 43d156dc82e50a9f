//! Whether a descriptor may have input, according to its events and reads. It is edge-triggered:
//! an event is reported once for what has arrived since the last one.

/// What is known about the input of a descriptor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Readable {
    ready: bool,
    stops_early: bool,
    urgent: bool,
}

impl Readable {
    /// No input is known. For a `local` descriptor (a unix socket), a read stops after each
    /// message with descriptors.
    pub fn new(local: bool) -> Readable {
        Readable { ready: false, stops_early: local, urgent: false }
    }

    /// Whether to read.
    pub fn is_ready(self) -> bool {
        self.ready
    }

    /// Notes that there may be input, so that a read tries it.
    pub fn try_again(&mut self) {
        self.ready = true;
    }

    /// Notes that there is no input, after EAGAIN or the end of input.
    pub fn end(&mut self) {
        self.ready = false;
    }

    /// Notes an event. After a hang-up, a read of the last bytes does not report the end behind
    /// them. With urgent data, a read stops at its mark.
    pub fn has_come(&mut self, hung_up: bool, urgent: bool) {
        self.ready = true;
        self.stops_early |= hung_up || urgent;
        self.urgent |= urgent;
    }

    /// Whether there may be a mark of urgent data.
    pub fn has_urgent_data(self) -> bool {
        self.urgent
    }

    /// Notes a read of `n` bytes out of `limit`. A short read means that nothing is left, unless
    /// reads stop early; later input gives another event.
    pub fn has_read(&mut self, n: usize, limit: usize) {
        self.ready = n >= limit || self.stops_early;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_read_is_the_last_one() {
        let mut readable = Readable::new(false);
        readable.has_come(false, false);
        readable.has_read(10, 10);
        assert!(readable.is_ready());
        readable.has_read(9, 10);
        assert!(!readable.is_ready());
    }

    #[test]
    fn reads_that_stop_early_go_on_until_nothing_is_left() {
        let [mut after_urgent_data, mut hung_up] = [Readable::new(false); 2];
        after_urgent_data.has_come(false, true);
        hung_up.has_come(true, false);
        assert_eq!([after_urgent_data, hung_up].map(Readable::has_urgent_data), [true, false]);
        for mut readable in [Readable::new(true), after_urgent_data, hung_up] {
            readable.try_again();
            readable.has_read(1, 10);
            assert!(readable.is_ready());
            readable.end();
            assert!(!readable.is_ready());
            readable.has_come(false, false);
            readable.has_read(1, 10);
            assert!(readable.is_ready());
        }
    }
}
