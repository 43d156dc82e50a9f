//! Starts and stops the two programs for the tests.

use std::io::{BufRead, BufReader, Read};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// Longest run of a program before it counts as hung.
const PATIENCE: Duration = Duration::from_secs(20);

/// A running `weir-reference`, killed when the test ends.
pub struct Reference {
    child: Child,
    pub port: u16,
}

impl Reference {
    /// Starts a server on a free port and waits until it listens.
    pub fn start(arguments: &str) -> Self {
        Self::start_on(0, arguments)
    }

    /// Starts a server on `port`.
    pub fn start_on(port: u16, arguments: &str) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_weir-reference"))
            .args(arguments.split_whitespace())
            .args(["--port", &port.to_string()])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        // Reads byte by byte: a buffer would swallow output that `stop` reads later.
        let mut out = child.stdout.take().unwrap();
        while !line.ends_with('\n') {
            let mut byte = [0];
            out.read_exact(&mut byte).unwrap();
            line.push(byte[0].into());
        }
        child.stdout = Some(out);
        let port = line.trim().strip_prefix("ready ").unwrap().parse().unwrap();
        Self { child, port }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// Ends the server with a signal and returns its status and the rest of its output.
    pub fn stop(mut self, signal: Signal) -> (ExitStatus, String) {
        send_signal(&self.child, signal);
        let status = wait(&mut self.child);
        let mut rest = String::new();
        let out = self.child.stdout.as_mut().unwrap();
        out.read_to_string(&mut rest).unwrap();
        (status, rest)
    }
}

impl Drop for Reference {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts `weir-drive` with pipes for its streams.
pub fn start_drive(arguments: &str) -> Child {
    Command::new(env!("CARGO_BIN_EXE_weir-drive"))
        .args(arguments.split_whitespace())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Runs `weir-drive` until it ends.
pub fn drive(arguments: &str) -> Output {
    finish(start_drive(arguments))
}

/// Runs `weir-drive`, which must succeed, and returns its report.
pub fn report(arguments: &str) -> Value {
    let output = drive(arguments);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{arguments}: {errors}");
    last_line(&output)
}

/// The JSON object on the last line of a program's output.
pub fn last_line(output: &Output) -> Value {
    let text = str::from_utf8(&output.stdout).unwrap();
    serde_json::from_str(text.lines().last().unwrap()).unwrap()
}

/// Waits for a program whose output fits into a pipe.
pub fn finish(mut child: Child) -> Output {
    wait(&mut child);
    child.wait_with_output().unwrap()
}

/// Waits for a program, and kills it if it hangs.
pub fn wait(child: &mut Child) -> ExitStatus {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        if start.elapsed() > PATIENCE {
            child.kill().unwrap();
            panic!("the program did not end within {PATIENCE:?}");
        }
        thread::sleep(Duration::from_millis(5));
    }
}

pub fn send_signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

/// The first line of a program's standard error.
pub fn first_error_line(child: &mut Child) -> String {
    let mut errors = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    errors.read_line(&mut line).unwrap();
    child.stderr = Some(errors.into_inner());
    line
}

/// A port without a listener.
pub fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    listener.local_addr().unwrap().port()
}

const BRIEF: &str = "--warmup 100ms --duration 300ms";

pub fn at(port: u16) -> String {
    format!("127.0.0.1:{port} {BRIEF}")
}

/// A server that calls `handle` for each connection, until the test program ends.
pub fn misbehaving(handle: impl Fn(TcpStream) + Send + Sync + Copy + 'static) -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || handle(stream));
        }
    });
    port
}

/// The error line of a run in which every connection fails before the window. The run ends then,
/// so a long warm-up costs nothing and gives a busy machine time.
pub fn failure_of(arguments: &str) -> String {
    let output = drive(&arguments.replace("--warmup 100ms", "--warmup 60s"));
    assert_eq!(output.status.code(), Some(1));
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!(errors.lines().count(), 1, "{errors}");
    errors
}

/// Checks a report without errors.
pub fn assert_clean(report: &Value) {
    assert_eq!(report["errors"], serde_json::json!({}), "{report}");
    assert!(report["requests"].as_u64().unwrap() > 0, "{report}");
    assert!(report["requests_per_s"].as_f64().unwrap() > 0.0);
    assert!(report["duration_s"].as_f64().unwrap() >= 0.3);
    let latency = |name: &str| report["latency_us"][name].as_f64().unwrap();
    assert!(latency("min") > 0.0);
    for (lower, higher) in [
        ("min", "p50"),
        ("p50", "p90"),
        ("p90", "p99"),
        ("p99", "p999"),
        ("p999", "max"),
    ] {
        assert!(latency(lower) <= latency(higher), "{lower} {report}");
    }
}
