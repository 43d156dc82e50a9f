//! The phases of a run: opening, warm-up, the measured window, the end.

use std::time::Duration;

use super::lane::{STOP, TICKER};
use super::load::Load;
use super::measurement::Measurement;
use super::observer::{Observer, Sample, ServerUse};
use crate::alarm::Alarm;
use crate::clock::{self, MILLISECOND, SECOND};
use crate::command_line::Failure;
use crate::poller::{Interest, Poller, Token};
use crate::stop::StopSignal;

/// How often the phase is checked. A separate timer, because a timeout of each wait in the hot
/// loop would make the kernel set and cancel a timer each time.
const TICK: u64 = 20 * MILLISECOND;

/// How often connections are checked for overdue replies.
pub(crate) const TIMEOUT_SCAN: u64 = 200 * MILLISECOND;

/// One run of the driver.
#[derive(Debug)]
pub struct Session {
    /// The poller of the run.
    pub poller: Poller,
    /// The counters.
    pub measurement: Measurement,
    phase: Phase,
    warmup: u64,
    duration: u64,
    /// Bytes after which the window ends early.
    most_bytes: u64,
    observer: Option<Observer>,
    progress: Option<Progress>,
    ticker: Alarm,
    /// Must live as long as the poller watches it.
    _stop: StopSignal,
}

#[derive(Debug)]
enum Phase {
    Opening,
    Warmup { until: u64, connections: u32 },
    Measuring(Window),
    Finished(Outcome),
}

#[derive(Debug)]
struct Window {
    started: u64,
    connections: u32,
    cpu: u64,
    server: Option<Sample>,
}

/// The figures of a finished run, besides the [`Measurement`].
#[derive(Clone, Copy, Debug)]
pub struct Outcome {
    /// Connections that were open when the window began.
    pub connections: u32,
    /// Length of the window in nanoseconds.
    pub window: u64,
    /// CPU time of the driver in the window, in nanoseconds.
    pub driver_cpu: u64,
    /// The observed server, if one was named and it ran to the end.
    pub server: Option<ServerUse>,
}

#[derive(Debug)]
struct Progress {
    started: u64,
    last_at: u64,
    last_count: u64,
}

impl Session {
    /// Prepares a run: installs the signal handlers, and samples the observed server before its
    /// first connection.
    pub fn new(load: &Load) -> Result<Self, Failure> {
        let poller = Poller::new()?;
        let stop = StopSignal::install()?;
        stop.register(&poller, STOP)?;
        let ticker = Alarm::new()?;
        ticker.set_every(TICK)?;
        poller.add(&ticker, TICKER, Interest::Read)?;
        let now = clock::now();
        Ok(Self {
            poller,
            measurement: Measurement::new(),
            phase: Phase::Opening,
            warmup: nanoseconds(load.warmup),
            duration: nanoseconds(load.duration),
            most_bytes: load.most_bytes.unwrap_or(u64::MAX),
            observer: (!load.observe.is_empty())
                .then(|| Observer::new(&load.observe))
                .transpose()?,
            progress: load.progress.then_some(Progress {
                started: now,
                last_at: now,
                last_count: 0,
            }),
            ticker,
            _stop: stop,
        })
    }

    /// All connections are open: starts the warm-up.
    pub fn begin(&mut self, connections: u32) {
        let until = clock::now() + self.warmup;
        self.phase = Phase::Warmup { until, connections };
    }

    /// Handles an event of the control lane at the time `now`.
    pub fn control(&mut self, token: Token, now: u64) -> Result<(), Failure> {
        if token == STOP {
            return self.finish(now);
        }
        self.ticker.acknowledge();
        match self.phase {
            Phase::Warmup { until, connections } if until <= now => self.open_window(connections),
            Phase::Measuring(Window { started, .. })
                if started + self.duration <= now
                    || self.measurement.bytes() >= self.most_bytes =>
            {
                self.finish(now)?;
            }
            _ => {}
        }
        self.report_progress(now);
        Ok(())
    }

    /// Ends the run now and keeps its figures.
    pub fn finish(&mut self, now: u64) -> Result<(), Failure> {
        match &self.phase {
            Phase::Finished(_) => Ok(()),
            Phase::Opening => Err(ended_early("all connections were open")),
            Phase::Warmup { .. } => Err(ended_early("the warm-up was over")),
            Phase::Measuring(window) => {
                self.measurement.record(false);
                let end = self.observer.as_ref().and_then(Observer::sample);
                let server = match (&self.observer, &window.server, &end) {
                    (Some(observer), Some(start), Some(end)) => Some(observer.between(start, end)),
                    _ => None,
                };
                self.phase = Phase::Finished(Outcome {
                    connections: window.connections,
                    window: now.saturating_sub(window.started).max(1),
                    driver_cpu: clock::process_cpu() - window.cpu,
                    server,
                });
                Ok(())
            }
        }
    }

    /// The figures of the run, once it is over.
    pub fn outcome(&self) -> Option<Outcome> {
        match self.phase {
            Phase::Finished(outcome) => Some(outcome),
            _ => None,
        }
    }

    fn open_window(&mut self, connections: u32) {
        let server = self.observer.as_ref().and_then(Observer::sample);
        self.measurement.record(true);
        self.phase = Phase::Measuring(Window {
            // Sampling takes time: the window begins after it.
            cpu: clock::process_cpu(),
            started: clock::now(),
            connections,
            server,
        });
    }

    fn report_progress(&mut self, now: u64) {
        let Some(progress) = &mut self.progress else {
            return;
        };
        if now - progress.last_at < SECOND {
            return;
        }
        let phase = match self.phase {
            Phase::Opening => "opening connections",
            Phase::Warmup { .. } => "warming up",
            Phase::Measuring(_) | Phase::Finished(_) => "measuring",
        };
        let count = self.measurement.count();
        let elapsed = (now - progress.last_at) as f64 / SECOND as f64;
        eprintln!(
            "{:>4} s  {phase}  {:.0}/s  errors {}",
            (now - progress.started) / SECOND,
            (count - progress.last_count) as f64 / elapsed,
            self.measurement.errors().values().sum::<u64>()
        );
        progress.last_at = now;
        progress.last_count = count;
    }
}

fn ended_early(before: &str) -> Failure {
    Failure::Runtime(format!(
        "the run ended before {before}: nothing was measured"
    ))
}

fn nanoseconds(duration: Duration) -> u64 {
    duration.as_nanos() as u64
}
