//! What a chat has to tell besides its delays.

/// How it went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Course {
    /// Messages that the server has taken, in the window.
    pub published: u64,
    /// Messages that a client should have got and was told nothing of.
    pub missed: u64,
    /// The longest time, in nanoseconds, for which something was due and nobody got anything.
    pub longest_silence: u64,
    /// Connections that did not come to be.
    pub failed_connects: u64,
    /// When something was due first since somebody got something.
    silent_since: Option<u64>,
}

impl Course {
    /// Something is to be said since then.
    pub fn due(&mut self, at: u64) {
        self.silent_since.get_or_insert(at);
    }

    /// A client has got a message, and missed some before it.
    pub fn got(&mut self, now: u64, missed: u64, is_recording: bool) {
        self.missed += missed;
        if let Some(since) = self.silent_since.take()
            && is_recording
        {
            self.was_silent(now, since);
        }
    }

    /// The window is over. A server that says nothing at the end is silent, too.
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
