//! Figures of a chat besides its delays.

/// The figures of a chat.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Course {
    /// Messages that the server accepted in the window.
    pub published: u64,
    /// Messages that a client should have received and did not.
    pub missed: u64,
    /// The longest time, in nanoseconds, in which a message was due and no client received one.
    pub longest_silence: u64,
    /// Connections that failed to open.
    pub failed_connects: u64,
    /// When the first message became due after the last one received.
    silent_since: Option<u64>,
}

impl Course {
    /// A message is due at this time.
    pub fn due(&mut self, at: u64) {
        self.silent_since.get_or_insert(at);
    }

    /// A client received a message after missing `missed` others.
    pub fn got(&mut self, now: u64, missed: u64, is_recording: bool) {
        self.missed += missed;
        if let Some(since) = self.silent_since.take()
            && is_recording
        {
            self.was_silent(now, since);
        }
    }

    /// The window is over. Silence at its end counts, too.
    pub fn ended(&mut self, now: u64) {
        if let Some(since) = self.silent_since {
            self.was_silent(now, since);
        }
    }

    fn was_silent(&mut self, now: u64, since: u64) {
        self.longest_silence = self.longest_silence.max(now.saturating_sub(since));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silence_lasts_from_what_was_due_first_to_what_somebody_gets() {
        let mut course = Course::default();
        course.got(100, 0, true);
        course.due(200);
        course.due(250);
        course.got(290, 2, true);
        course.got(900, 1, true);
        assert_eq!((course.longest_silence, course.missed), (90, 3));
        course.due(1000);
        course.got(2000, 0, false);
        assert_eq!(course.longest_silence, 90);
        course.due(3000);
        course.ended(3500);
        assert_eq!(course.longest_silence, 500);
    }
}
