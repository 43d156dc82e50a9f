//! A timer that wakes a poller as an event, with microsecond resolution.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Result;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

use crate::clock::SECOND;

/// A timer. Watch it level-triggered, or edge-triggered with [`acknowledge`](Self::acknowledge).
#[derive(Debug)]
pub struct Alarm {
    timer: OwnedFd,
}

impl Alarm {
    /// Creates a timer that is not set.
    pub fn new() -> Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        Ok(Self { timer })
    }

    /// Fires once, at a time of [`clock::now`](crate::clock::now), or at once if that time has
    /// passed.
    #[inline]
    pub fn set(&self, at: u64) -> Result<()> {
        self.schedule(TimerfdTimerFlags::ABSTIME, at.max(1), 0)
    }

    /// Fires repeatedly.
    pub fn set_every(&self, interval: u64) -> Result<()> {
        self.schedule(TimerfdTimerFlags::empty(), interval, interval)
    }

    /// Acknowledges that the timer has fired. timerfd_create(2): a periodic timer makes a new edge
    /// only after a read.
    #[inline]
    pub fn acknowledge(&self) {
        let _ = rustix::io::read(&self.timer, &mut [0; 8]);
    }

    fn schedule(&self, flags: TimerfdTimerFlags, first: u64, interval: u64) -> Result<()> {
        let schedule = Itimerspec {
            it_interval: timespec(interval),
            it_value: timespec(first),
        };
        timerfd_settime(&self.timer, flags, &schedule)?;
        Ok(())
    }
}

impl AsFd for Alarm {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.timer.as_fd()
    }
}

fn timespec(nanoseconds: u64) -> Timespec {
    Timespec {
        tv_sec: (nanoseconds / SECOND) as i64,
        tv_nsec: (nanoseconds % SECOND) as i64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;
    use crate::poller::{Events, Interest, Poller, Token};
    use std::time::Duration;

    #[test]
    fn it_goes_off_when_it_is_set_and_not_before() {
        let alarm = Alarm::new().unwrap();
        let poller = Poller::new().unwrap();
        let token = Token::new(0, 0, 0);
        poller.add(&alarm, token, Interest::Read).unwrap();
        let mut events = Events::new();
        for wait in [5 * clock::MILLISECOND, 0] {
            let at = clock::now() + wait;
            alarm.set(at).unwrap();
            poller
                .wait(&mut events, Some(Duration::from_secs(10)))
                .unwrap();
            assert!(clock::now() >= at);
            assert_eq!(events.iter().count(), 1);
            alarm.acknowledge();
        }
    }
}
