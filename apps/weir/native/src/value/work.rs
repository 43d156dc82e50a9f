//! The budget of one call into native code.

use std::time::{Duration, Instant};

use super::counters::Tally;

/// Bytes and time that a call may spend before the rest goes to the ready list. A NIF call must
/// stay well under 1 ms.
pub struct Work {
    bytes: usize,
    visits: u32,
    steps: u32,
    until: Option<Instant>,
    over: bool,
    substitute: bool,
    /// What a poll has read and written. Operations of processes count on the pollset directly.
    pub tally: Option<Tally>,
}

const BYTES: usize = 1024 * 1024;
const TIME: Duration = Duration::from_micros(500);

/// This many bytes of a file cost as much as one copied byte.
const FILE: usize = 4;

/// The clock is read once in this many steps, since reading it costs time.
const CLOCK_EVERY: u32 = 32;

impl Work {
    /// The budget of a poll that begins now.
    pub fn of_poll(now: Instant) -> Work {
        Work {
            bytes: BYTES,
            visits: 0,
            steps: 0,
            until: Some(now + TIME),
            over: false,
            substitute: false,
            tally: Some(Tally::default()),
        }
    }

    /// The budget of a thread that polls in the poller's place. It leaves messages of active
    /// sockets to the poller: the VM keeps messages in order for one sender only.
    pub fn of_substitute(now: Instant) -> Work {
        Work { substitute: true, ..Work::of_poll(now) }
    }

    /// The budget for broadcasts of a poll that begins now.
    pub fn of_groups(now: Instant) -> Work {
        Work {
            bytes: BYTES,
            visits: 0,
            steps: 0,
            until: Some(now + TIME / 2),
            over: false,
            substitute: false,
            tally: None,
        }
    }

    /// The budget of an operation on one socket. Its time starts at the first clock reading, since
    /// few operations take that many steps.
    pub fn of_caller() -> Work {
        Work { bytes: BYTES, visits: 0, steps: 0, until: None, over: false, substitute: false, tally: None }
    }

    /// Charges bytes that were moved.
    pub fn moved(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_sub(bytes);
    }

    /// Charges bytes of a file, at a quarter, since the kernel does not copy them. Reads the
    /// clock, because a part can be large.
    pub fn moved_of_file(&mut self, bytes: usize) {
        self.moved(bytes / FILE);
        let now = Instant::now();
        self.over |= now >= *self.until.get_or_insert(now + TIME);
    }

    /// Returns how many of `bytes` bytes of a file there is time for.
    pub fn share_of_file(&self, bytes: u64) -> u64 {
        (self.share(BYTES as u64) * FILE as u64).min(bytes)
    }

    /// Charges a visit of a socket.
    pub fn visited(&mut self) {
        self.visits += 1;
        self.stepped();
    }

    /// Charges a message, a read or another repeated step of a visit; a megabyte can be a million
    /// of them.
    pub fn stepped(&mut self) {
        self.steps += 1;
        if self.steps.is_multiple_of(CLOCK_EVERY) {
            let now = Instant::now();
            self.over |= now >= *self.until.get_or_insert(now + TIME);
        }
    }

    /// Estimates how many visits fit in a poll, from those since `began`; `None` if there were too
    /// few.
    pub fn fits(&self, began: Instant) -> Option<usize> {
        (self.visits >= CLOCK_EVERY).then(|| {
            let each = began.elapsed().as_nanos() / u128::from(self.visits);
            usize::try_from(TIME.as_nanos() / each.max(1)).unwrap_or(usize::MAX)
        })
    }

    /// Estimates how many more visits fit in this poll; `None` if there were too few.
    pub fn room(&self, began: Instant) -> Option<usize> {
        self.fits(began).map(|fits| fits.saturating_sub(self.visits as usize))
    }

    /// Returns how many of `bytes` bytes, moved in one step, there is time for. At least a
    /// sixteenth, so that a transfer that is last in every call still progresses.
    pub fn share(&self, bytes: u64) -> u64 {
        let left = self.until.map_or(TIME, |until| until.saturating_duration_since(Instant::now()).min(TIME));
        (bytes * left.as_nanos() as u64 / TIME.as_nanos() as u64).min(self.bytes as u64).max(bytes / 16)
    }

    /// Whether the budget is used up.
    pub fn is_over(&self) -> bool {
        self.over || self.bytes == 0
    }

    /// Whether messages of active sockets are left to the poller.
    pub fn is_substitute(&self) -> bool {
        self.substitute
    }

    /// The cost in percent of a time slice, for a process that worked for itself. A system call
    /// takes about 1 % of the 1 ms of a slice, and so does copying 32 KiB.
    pub fn percent(&self) -> i32 {
        1 + ((BYTES - self.bytes) / (32 * 1024)).min(99) as i32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_run_out() {
        let mut work = Work::of_caller();
        work.moved(BYTES - 1);
        assert!(!work.is_over());
        work.moved(5);
        assert!(work.is_over());
    }

    #[test]
    fn time_runs_out() {
        let mut work = Work::of_poll(Instant::now() - TIME);
        for _ in 1..CLOCK_EVERY {
            work.visited();
        }
        assert!(!work.is_over());
        work.visited();
        assert!(work.is_over());
    }

    #[test]
    fn steps_take_time_from_the_first_look_on() {
        let mut work = Work::of_caller();
        let steps = (1..).take_while(|_| {
            work.stepped();
            std::thread::sleep(TIME / 100);
            !work.is_over()
        });
        assert!((CLOCK_EVERY as usize..200).contains(&steps.count()));
        assert_eq!(work.fits(Instant::now()), None);
    }

    #[test]
    fn what_fits_follows_from_what_visits_took() {
        let mut work = Work::of_poll(Instant::now());
        let began = Instant::now() - TIME;
        for _ in 0..CLOCK_EVERY {
            assert_eq!(work.fits(began), None);
            work.visited();
        }
        // The visits took the whole time, and the test's time on top, so no more fit.
        assert_eq!(work.room(began), Some(0));
        assert!(work.room(Instant::now()).is_some_and(|room| room > 0));
        assert!(work.fits(began).is_some_and(|fits| fits <= CLOCK_EVERY as usize));
        assert!(work.fits(Instant::now()).is_some_and(|fits| fits > CLOCK_EVERY as usize));
    }

    #[test]
    fn a_large_step_has_its_share_of_what_is_left() {
        let share = |left| Work { until: Some(Instant::now() + left), ..Work::of_caller() }.share(1600);
        assert_eq!(share(Duration::ZERO), 100);
        assert!((100..=800).contains(&share(TIME / 2)));
        assert_eq!(Work::of_caller().share(1600), 1600);
        let mut work = Work::of_caller();
        work.moved(BYTES - 300);
        assert_eq!(work.share(1600), 300);
    }

    #[test]
    fn bytes_of_files_cost_less() {
        let mut work = Work::of_caller();
        assert_eq!(work.share_of_file(2 * BYTES as u64), 2 * BYTES as u64);
        work.moved_of_file(BYTES);
        assert!(!work.is_over());
        assert!(work.share_of_file(4 * BYTES as u64) <= 3 * BYTES as u64);
        work.moved_of_file(3 * BYTES);
        assert!(work.is_over());
        let mut late = Work::of_poll(Instant::now() - TIME);
        assert_eq!(late.share_of_file(BYTES as u64), BYTES as u64 / 4);
        late.moved_of_file(1);
        assert!(late.is_over());
    }

    #[test]
    fn a_slice_is_never_exceeded() {
        let mut work = Work::of_caller();
        assert_eq!(work.percent(), 1);
        work.moved(64 * 1024);
        assert_eq!(work.percent(), 3);
        work.moved(usize::MAX);
        assert!(work.percent() <= 100);
    }
}
