//! The CPU time, the context switches and the memory of the server under test, read from /proc.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::clock::SECOND;
use crate::command_line::Failure;

/// The observed processes of one server.
#[derive(Debug)]
pub struct Observer {
    pids: Vec<u32>,
    baseline_kib: u64,
}

/// The state of the processes at one moment.
#[derive(Debug)]
pub struct Sample {
    cpu: Vec<Cpu>,
    switches: Vec<BTreeMap<u32, u64>>,
    rss_kib: u64,
}

/// What the processes used together between two samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerUse {
    /// CPU time of all its threads, in nanoseconds.
    pub cpu: u64,
    /// Context switches of its threads, voluntary or not. Switches of a thread that ends in the
    /// window are lost.
    pub switches: u64,
    /// Resident memory before the first connection.
    pub rss_baseline_kib: u64,
    /// Resident memory at the first sample.
    pub rss_start_kib: u64,
    /// Resident memory at the second sample.
    pub rss_end_kib: u64,
}

#[derive(Debug, PartialEq, Eq)]
enum Cpu {
    /// Nanoseconds by thread, from schedstat. The time of a thread that ends in the window is
    /// lost.
    Threads(BTreeMap<u32, u64>),
    /// Nanoseconds of the whole process, in clock ticks, if the kernel has no schedstat.
    Process(u64),
}

impl Observer {
    /// Starts to observe processes, and takes their present memory as the baseline.
    pub fn new(pids: &[u32]) -> Result<Self, Failure> {
        let present = |&pid: &u32| {
            rss_kib(pid).ok_or_else(|| {
                Failure::Runtime(format!(
                    "cannot observe process {pid}: it is not there, or has no memory"
                ))
            })
        };
        Ok(Self {
            pids: pids.to_vec(),
            baseline_kib: pids.iter().map(present).sum::<Result<_, _>>()?,
        })
    }

    /// The present state; `None` if one of the processes has ended.
    pub fn sample(&self) -> Option<Sample> {
        let pids = self.pids.iter().copied();
        Some(Sample {
            cpu: pids.clone().map(Cpu::of).collect::<Option<_>>()?,
            switches: pids
                .clone()
                .map(|pid| by_thread(pid, switches))
                .collect::<Option<_>>()?,
            rss_kib: pids.map(rss_kib).sum::<Option<_>>()?,
        })
    }

    /// The difference of two samples.
    pub fn between(&self, start: &Sample, end: &Sample) -> ServerUse {
        ServerUse {
            cpu: std::iter::zip(&end.cpu, &start.cpu)
                .map(|(end, start)| end.since(start))
                .sum(),
            switches: std::iter::zip(&end.switches, &start.switches)
                .map(|(end, start)| grown(end, start))
                .sum(),
            rss_baseline_kib: self.baseline_kib,
            rss_start_kib: start.rss_kib,
            rss_end_kib: end.rss_kib,
        }
    }
}

impl Cpu {
    fn of(pid: u32) -> Option<Self> {
        let threads = by_thread(pid, processor_time)?;
        // All zero: the kernel has the files but does not fill them.
        if threads.values().any(|&time| time > 0) {
            return Some(Self::Threads(threads));
        }
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let ticks_per_second = rustix::param::clock_ticks_per_second();
        Some(Self::Process(
            stat_ticks(&stat)? * SECOND / ticks_per_second,
        ))
    }

    fn since(&self, start: &Self) -> u64 {
        match (self, start) {
            (Self::Threads(now), Self::Threads(then)) => grown(now, then),
            (Self::Process(now), Self::Process(then)) => now.saturating_sub(*then),
            // A process without schedstat in the first sample has none in the second.
            _ => 0,
        }
    }
}

/// A number of each thread, read from its directory in /proc.
fn by_thread(pid: u32, read: fn(&Path) -> Option<u64>) -> Option<BTreeMap<u32, u64>> {
    let mut numbers = BTreeMap::new();
    for entry in fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten() {
        let thread = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok());
        // A thread may end between the listing and the reading.
        if let (Some(thread), Some(number)) = (thread, read(&entry.path())) {
            numbers.insert(thread, number);
        }
    }
    Some(numbers)
}

/// The total growth of the threads' numbers. A new thread counts in full.
fn grown(now: &BTreeMap<u32, u64>, then: &BTreeMap<u32, u64>) -> u64 {
    now.iter()
        .map(|(thread, number)| number.saturating_sub(then.get(thread).copied().unwrap_or(0)))
        .sum()
}

fn processor_time(thread: &Path) -> Option<u64> {
    let text = fs::read_to_string(thread.join("schedstat")).ok()?;
    text.split_whitespace().next()?.parse().ok()
}

fn switches(thread: &Path) -> Option<u64> {
    status_switches(&fs::read_to_string(thread.join("status")).ok()?)
}

fn status_switches(status: &str) -> Option<u64> {
    let number = |name: &str| -> Option<u64> {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().parse().ok()
    };
    Some(number("voluntary_ctxt_switches:")? + number("nonvoluntary_ctxt_switches:")?)
}

/// User and system time in clock ticks. The second field is the program's name in parentheses,
/// which may contain any character.
fn stat_ticks(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(user + system)
}

fn rss_kib(pid: u32) -> Option<u64> {
    status_rss(&fs::read_to_string(format!("/proc/{pid}/status")).ok()?)
}

fn status_rss(status: &str) -> Option<u64> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;
    use std::thread;
    use std::time::Duration;

    #[test]
    fn fields_of_proc_are_found() {
        let stat = "12 (a) b (c) S 1 12 12 0 -1 4194560 1 2 3 4 250 50 0 0 20 0 1 0 5 6";
        assert_eq!(stat_ticks(stat), Some(300));
        assert_eq!(stat_ticks("12 (a"), None);
        let status = "Name:\ta\nVmRSS:\t    5120 kB\nThreads:\t1\n";
        assert_eq!(status_rss(status), Some(5120));
        assert_eq!(status_rss("Name:\tkthreadd\n"), None);
        let status = "Name:\ta\nvoluntary_ctxt_switches:\t40\nnonvoluntary_ctxt_switches:\t2\n";
        assert_eq!(status_switches(status), Some(42));
        assert_eq!(status_switches("Name:\ta\n"), None);
    }

    #[test]
    fn a_new_thread_counts_in_full() {
        let then = Cpu::Threads(BTreeMap::from([(1, 100), (2, 50)]));
        let now = Cpu::Threads(BTreeMap::from([(1, 130), (3, 7)]));
        assert_eq!(now.since(&then), 37);
    }

    #[test]
    fn the_own_process_is_seen_working() {
        let observer = Observer::new(&[std::process::id()]).unwrap();
        let start = observer.sample().unwrap();
        let until = clock::process_cpu() + 30 * clock::MILLISECOND;
        while clock::process_cpu() < until {}
        let used = observer.between(&start, &observer.sample().unwrap());
        thread::sleep(Duration::from_millis(1));
        let later = observer.between(&start, &observer.sample().unwrap());
        assert!(used.cpu > 0);
        assert!(later.switches > used.switches);
        assert!(used.rss_baseline_kib > 0 && used.rss_end_kib > 0);
    }

    #[test]
    fn processes_count_together() {
        let own = std::process::id();
        let observer = Observer::new(&[own, own]).unwrap();
        assert!(observer.baseline_kib > rss_kib(own).unwrap());
        let sample = |times: [u64; 2], rss_kib| Sample {
            cpu: times.map(Cpu::Process).into(),
            switches: times.map(|count| BTreeMap::from([(1, count)])).into(),
            rss_kib,
        };
        let used = observer.between(&sample([10, 20], 5), &sample([11, 50], 6));
        assert_eq!((used.cpu, used.switches, used.rss_end_kib), (31, 31, 6));
    }

    #[test]
    fn a_process_that_is_not_there_is_an_error() {
        let own = std::process::id();
        for gone in [[u32::MAX, own], [own, u32::MAX]] {
            assert!(matches!(Observer::new(&gone), Err(Failure::Runtime(_))));
        }
    }
}
