//! The result of a run as a JSON object.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use serde::Serialize;

use super::chat::Course;
use super::load::Load;
use super::measurement::Measurement;
use super::observer::ServerUse;
use super::session::Outcome;
use crate::clock::SECOND;

/// The report of a run. Fields that do not apply to its command are omitted.
#[derive(Debug, Serialize)]
pub struct Report {
    command: &'static str,
    target: String,
    connections: u32,
    duration_s: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    requests: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    requests_per_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ticks: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ticks_per_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes_received: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes_verified: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes_transferred: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes_per_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    latency_us: Option<Latency>,
    #[serde(skip_serializing_if = "Option::is_none")]
    published: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    missed: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    longest_silence_us: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    failed_connects: Option<u64>,
    errors: BTreeMap<&'static str, u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    server: Option<Server>,
    driver_cpu_s: f64,
    #[serde(skip)]
    bytes: u64,
}

/// Latencies in microseconds, with one decimal.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Latency {
    min: f64,
    p50: f64,
    p90: f64,
    p95: f64,
    p99: f64,
    p999: f64,
    max: f64,
    mean: f64,
}

/// What the observed server used in the window.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct Server {
    cpu_s: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    cpu_us_per_request: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    switches_per_request: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cpu_s_per_minute: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes_per_cpu_s: Option<f64>,
    rss_baseline_kib: u64,
    rss_start_kib: u64,
    rss_end_kib: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes_per_connection: Option<f64>,
}

impl Report {
    /// For a command that counts requests and their latencies.
    pub fn of_requests(
        command: &'static str,
        load: &Load,
        (outcome, measurement): (Outcome, Measurement),
    ) -> Self {
        let count = measurement.count();
        let mut report = Self::new(command, load, outcome, &measurement);
        report.requests = Some(count);
        report.requests_per_s = Some(rate(count, outcome.window));
        report.latency_us = Latency::of(measurement.latency());
        if let Some(server) = &mut report.server
            && let Some(used) = outcome.server
            && count > 0
        {
            let each = |all: f64| Some(round(all / count as f64, 3));
            server.cpu_us_per_request = each(used.cpu as f64 / 1e3);
            server.switches_per_request = each(used.switches as f64);
        }
        report
    }

    /// For a command that counts bytes.
    pub fn of_bytes(
        command: &'static str,
        load: &Load,
        (outcome, measurement): (Outcome, Measurement),
    ) -> Self {
        let bytes = measurement.bytes();
        let mut report = Self::new(command, load, outcome, &measurement);
        report.bytes_transferred = Some(bytes);
        report.bytes_per_s = Some(rate(bytes, outcome.window));
        if let Some(server) = &mut report.server
            && let Some(cpu) = outcome.server.map(|used| used.cpu)
            && cpu > 0
        {
            server.bytes_per_cpu_s = Some(rate(bytes, cpu));
        }
        report
    }

    /// For a command that counts ticks, which the server sends by a timer.
    pub fn of_ticks(
        command: &'static str,
        load: &Load,
        (outcome, measurement): (Outcome, Measurement),
    ) -> Self {
        let count = measurement.count();
        let mut report = Self::of_idling(command, load, (outcome, measurement));
        report.ticks = Some(count);
        report.ticks_per_s = Some(rate(count, outcome.window));
        report.bytes_received = Some(report.bytes);
        report
    }

    /// For a command that holds connections: their cost for the server.
    pub fn of_idling(
        command: &'static str,
        load: &Load,
        (outcome, measurement): (Outcome, Measurement),
    ) -> Self {
        let mut report = Self::new(command, load, outcome, &measurement);
        if let (Some(server), Some(used)) = (&mut report.server, outcome.server) {
            server.cpu_s_per_minute =
                Some(round(used.cpu as f64 * 60.0 / outcome.window as f64, 4));
            let grown_kib = used.rss_start_kib as f64 - used.rss_baseline_kib as f64;
            let connections = f64::from(outcome.connections.max(1));
            server.bytes_per_connection = Some(round(grown_kib * 1024.0 / connections, 0));
        }
        report
    }

    /// Adds that all received bytes were compared with those that were sent.
    pub fn with_bytes_verified(mut self) -> Self {
        self.bytes_verified = Some(self.bytes);
        self
    }

    /// Adds the figures of a chat.
    pub fn with_course(mut self, course: Course) -> Self {
        self.published = Some(course.published);
        self.missed = Some(course.missed);
        self.longest_silence_us = Some(microseconds(course.longest_silence as f64));
        self.failed_connects = Some(course.failed_connects);
        self
    }

    /// Whether any request, tick or byte succeeded.
    pub fn is_success(&self) -> bool {
        match self.requests.or(self.ticks).or(self.bytes_transferred) {
            Some(count) => count > 0,
            None => self.connections > 0,
        }
    }

    /// Errors by kind.
    pub fn errors(&self) -> &BTreeMap<&'static str, u64> {
        &self.errors
    }

    /// The report on one line.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("numbers and names can always be written as JSON")
    }

    fn new(
        command: &'static str,
        load: &Load,
        outcome: Outcome,
        measurement: &Measurement,
    ) -> Self {
        Self {
            command,
            target: load.target.to_string(),
            connections: outcome.connections,
            duration_s: seconds(outcome.window),
            requests: None,
            requests_per_s: None,
            ticks: None,
            ticks_per_s: None,
            bytes_received: None,
            bytes_verified: None,
            bytes_transferred: None,
            bytes_per_s: None,
            latency_us: None,
            published: None,
            missed: None,
            longest_silence_us: None,
            failed_connects: None,
            errors: measurement.errors().clone(),
            server: outcome.server.map(Server::from),
            driver_cpu_s: seconds(outcome.driver_cpu),
            bytes: measurement.bytes(),
        }
    }
}

impl Latency {
    /// The percentiles of a histogram of nanoseconds; `None` if it is empty.
    pub fn of(histogram: &Histogram<u32>) -> Option<Self> {
        if histogram.is_empty() {
            return None;
        }
        let at = |quantile| microseconds(histogram.value_at_quantile(quantile) as f64);
        Some(Self {
            min: microseconds(histogram.min() as f64),
            p50: at(0.5),
            p90: at(0.9),
            p95: at(0.95),
            p99: at(0.99),
            p999: at(0.999),
            max: microseconds(histogram.max() as f64),
            mean: microseconds(histogram.mean()),
        })
    }
}

impl From<ServerUse> for Server {
    fn from(used: ServerUse) -> Self {
        Self {
            cpu_s: seconds(used.cpu),
            cpu_us_per_request: None,
            switches_per_request: None,
            cpu_s_per_minute: None,
            bytes_per_cpu_s: None,
            rss_baseline_kib: used.rss_baseline_kib,
            rss_start_kib: used.rss_start_kib,
            rss_end_kib: used.rss_end_kib,
            bytes_per_connection: None,
        }
    }
}

fn rate(count: u64, window: u64) -> f64 {
    round(count as f64 * SECOND as f64 / window as f64, 1)
}

fn seconds(nanoseconds: u64) -> f64 {
    round(nanoseconds as f64 / SECOND as f64, 4)
}

fn microseconds(nanoseconds: f64) -> f64 {
    round(nanoseconds / 1e3, 1)
}

fn round(value: f64, decimals: i32) -> f64 {
    let scale = 10_f64.powi(decimals);
    (value * scale).round() / scale
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drive::target::Target;
    use serde_json::Value;
    use std::time::Duration;

    fn load() -> Load {
        Load {
            target: Target::new(([127, 0, 0, 1], 80).into(), 10),
            connections: 10,
            warmup: Duration::ZERO,
            duration: Duration::from_secs(2),
            most_bytes: None,
            timeout: Duration::from_secs(5),
            observe: Vec::new(),
            progress: false,
            connect_rate: None,
        }
    }

    fn outcome(server: Option<ServerUse>) -> Outcome {
        Outcome {
            connections: 10,
            window: 2 * SECOND,
            driver_cpu: SECOND / 2,
            server,
        }
    }

    const USED: ServerUse = ServerUse {
        cpu: SECOND / 10,
        switches: 250,
        rss_baseline_kib: 1000,
        rss_start_kib: 1100,
        rss_end_kib: 1200,
    };

    fn thousand() -> Measurement {
        let mut measurement = Measurement::new();
        measurement.record(true);
        for n in 1..=1000 {
            measurement.completed_in(n * 1000);
            measurement.transferred(64);
        }
        measurement
    }

    #[test]
    fn requests_with_their_percentiles() {
        let report = Report::of_requests("echo", &load(), (outcome(Some(USED)), thousand()))
            .with_bytes_verified();
        assert!(report.is_success());
        let json: Value = serde_json::from_str(&report.to_json()).unwrap();
        assert_eq!(json["target"], "127.0.0.1:80");
        assert_eq!(json["requests"], 1000);
        assert_eq!(json["requests_per_s"], 500.0);
        assert_eq!(json["bytes_verified"], 64_000);
        assert_eq!(json["server"]["cpu_s"], 0.1);
        assert_eq!(json["server"]["cpu_us_per_request"], 100.0);
        assert_eq!(json["server"]["switches_per_request"], 0.25);
        assert_eq!(json["driver_cpu_s"], 0.5);
        assert_eq!(json["errors"], serde_json::json!({}));
        // The histogram keeps three digits: each figure may be off by 0.1 %.
        for (name, expected) in [
            ("min", 1.0),
            ("p50", 500.0),
            ("p90", 900.0),
            ("p95", 950.0),
            ("p99", 990.0),
            ("p999", 999.0),
            ("max", 1000.0),
            ("mean", 500.5),
        ] {
            let value = json["latency_us"][name].as_f64().unwrap();
            assert!((value / expected - 1.0).abs() < 0.002, "{name} is {value}");
            assert_eq!(value, round(value, 1));
        }
        for absent in ["ticks", "bytes_received", "bytes"] {
            assert!(json.get(absent).is_none(), "{absent}");
        }
    }

    #[test]
    fn without_a_request_there_is_no_latency_and_no_success() {
        let mut measurement = Measurement::new();
        measurement.failed(super::super::measurement::Fault::Timeout);
        let report = Report::of_requests("http", &load(), (outcome(Some(USED)), measurement));
        assert!(!report.is_success());
        let json: Value = serde_json::from_str(&report.to_json()).unwrap();
        assert!(json.get("latency_us").is_none());
        assert!(json["server"].get("cpu_us_per_request").is_none());
        assert_eq!(json["errors"]["timeout"], 1);
    }

    #[test]
    fn bytes_by_time_and_by_cpu_time() {
        let report = Report::of_bytes("upload", &load(), (outcome(Some(USED)), thousand()));
        assert!(report.is_success());
        let json: Value = serde_json::from_str(&report.to_json()).unwrap();
        assert_eq!(json["bytes_transferred"], 64_000);
        assert_eq!(json["bytes_per_s"], 32_000.0);
        assert_eq!(json["server"]["bytes_per_cpu_s"], 640_000.0);
        assert!(json.get("requests").is_none() && json.get("latency_us").is_none());
        let nothing = (outcome(None), Measurement::new());
        assert!(!Report::of_bytes("upload", &load(), nothing).is_success());
    }

    #[test]
    fn connections_that_are_held_have_a_price() {
        let report = Report::of_ticks("game", &load(), (outcome(Some(USED)), thousand()));
        let json: Value = serde_json::from_str(&report.to_json()).unwrap();
        assert_eq!(json["ticks"], 1000);
        assert_eq!(json["bytes_received"], 64_000);
        assert_eq!(json["server"]["cpu_s_per_minute"], 3.0);
        assert_eq!(json["server"]["bytes_per_connection"], 10_240.0);
        assert!(json.get("requests").is_none());
    }
}
