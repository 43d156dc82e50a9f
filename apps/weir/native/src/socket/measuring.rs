//! Reply times: from the last bytes of a request to the first bytes of its reply, as in tcprstat.

use super::Socket;
use crate::kernel::clock::Nanos;
use crate::value::latency;

impl Socket {
    /// Notes that bytes of the peer were read.
    #[inline]
    pub fn was_asked(&mut self) {
        if latency::is_wanted() {
            self.note_asked();
        }
    }

    #[cold]
    fn note_asked(&mut self) {
        let measured = self.permit.as_ref().is_some_and(|permit| permit.times(self.pollset).is_some());
        self.asked = measured.then(Nanos::now);
    }

    /// Notes that bytes were written.
    #[inline]
    pub fn has_replied(&mut self) {
        if let Some(asked) = self.asked.take() {
            self.note_replied(asked);
        }
    }

    #[cold]
    fn note_replied(&mut self, asked: Nanos) {
        if let Some(times) = self.permit.as_ref().and_then(|permit| permit.times(self.pollset)) {
            times.count(Nanos::now().nanoseconds_since(asked));
        }
    }
}
