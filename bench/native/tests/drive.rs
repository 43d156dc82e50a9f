//! Each driver command against its reference server.

#[allow(dead_code, reason = "each test program uses a part")]
mod programs;

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use programs::{Reference, assert_clean, at, drive, failure_of, finish, last_line, misbehaving};
use programs::{report, send_signal, start_drive};
use rustix::process::Signal;
use rustls::crypto::ring;
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::version::TLS13;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::Value;
use weir_bench_native::clock;

#[test]
fn echo_of_every_shape() {
    let server = Reference::start("echo");
    for shape in [
        "--connections 1",
        "--connections 600",
        "--connections 3 --size 1",
        "--connections 3 --size 1000 --depth 16",
        "--connections 3 --frame 4",
        "--connections 3 --frame line --depth 3",
        // More than the kernel's buffers hold, in both directions.
        "--connections 2 --size 1048576 --depth 8",
    ] {
        let report = report(&format!("echo {} {shape}", at(server.port)));
        assert_clean(&report);
        let bytes = report["bytes_verified"].as_u64().unwrap();
        assert!(bytes > 0, "{shape}");
    }
}

#[test]
fn echo_at_a_rate() {
    let server = Reference::start("echo");
    let report = report(&format!(
        "echo {} --connections 50 --rate 1000",
        at(server.port)
    ));
    assert_clean(&report);
    let requests = report["requests"].as_u64().unwrap();
    // Without the rate limit it would be a hundred thousand.
    assert!(
        report["requests_per_s"].as_f64().unwrap() < 3000.0,
        "{report}"
    );
    assert!(report["bytes_verified"].as_u64().unwrap() >= requests * 64);
}

#[test]
fn at_a_rate_a_stalled_server_is_charged_for_what_it_kept_waiting() {
    let port = misbehaving(|mut stream| {
        thread::sleep(Duration::from_secs(1));
        let mut buffer = [0; 4096];
        while let Ok(length @ 1..) = stream.read(&mut buffer) {
            if stream.write_all(&buffer[..length]).is_err() {
                return;
            }
        }
    });
    let report = report(&format!(
        "echo 127.0.0.1:{port} --connections 1 --rate 200 --warmup 0s --duration 3s"
    ));
    // About 200 messages were due in the second without a reply, and waited half a second in the
    // median. So a tenth of all messages waited half a second or longer; a closed loop would count
    // one.
    assert!(
        report["latency_us"]["p90"].as_f64().unwrap() > 300_000.0,
        "{report}"
    );
}

#[test]
fn echo_by_tls() {
    let port = tls_echo();
    for shape in [
        "--connections 20",
        "--connections 2 --frame 4 --depth 4",
        // More than rustls and the kernel's buffers hold.
        "--connections 2 --size 1048576 --depth 8",
    ] {
        let report = report(&format!("echo {} --tls {shape}", at(port)));
        assert_clean(&report);
        assert!(report["bytes_verified"].as_u64().unwrap() > 0, "{shape}");
    }
}

#[test]
fn a_server_without_tls_is_told_apart() {
    let server = Reference::start("echo");
    let arguments = format!("echo 127.0.0.1:{} --connections 3 --tls", server.port);
    assert!(failure_of(&arguments).contains("tls"));
}

#[test]
fn bytes_both_ways() {
    for (command, service) in [("download", "chargen"), ("upload", "discard")] {
        let server = Reference::start(service);
        let arguments = format!("{command} {} --connections 2", at(server.port));
        let report = report(&format!("{arguments} --observe {}", server.pid()));
        assert_eq!(report["errors"], serde_json::json!({}), "{report}");
        assert!(
            report["bytes_transferred"].as_u64().unwrap() > 1 << 20,
            "{report}"
        );
        assert!(report["bytes_per_s"].as_f64().unwrap() > 0.0);
        assert!(report["server"]["bytes_per_cpu_s"].as_f64().unwrap() > 0.0);
    }
}

#[test]
fn a_file() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.lock");
    let server = Reference::start(&format!("file --file {path}"));
    assert_clean(&report(&format!(
        "http {} --connections 8",
        at(server.port)
    )));
}

#[test]
fn the_observed_server_is_reported() {
    let server = Reference::start("echo");
    let pid = server.pid();
    let report = report(&format!("echo {} --observe {pid}", at(server.port)));
    assert_clean(&report);
    assert_eq!(report["connections"], 100);
    assert!(report["server"]["cpu_s"].as_f64().unwrap() > 0.0);
    assert!(report["server"]["cpu_us_per_request"].as_f64().unwrap() > 0.0);
    assert!(report["server"]["rss_end_kib"].as_u64().unwrap() > 0);
    assert!(report["driver_cpu_s"].as_f64().unwrap() > 0.0);
}

#[test]
fn http() {
    let server = Reference::start("http");
    assert_clean(&report(&format!("http {}", at(server.port))));
}

#[test]
fn http_at_a_rate() {
    let server = Reference::start("http");
    let report = report(&format!(
        "http {} --connections 50 --rate 1000",
        at(server.port)
    ));
    assert_clean(&report);
    // Without the rate limit it would be a hundred thousand.
    assert!(
        report["requests_per_s"].as_f64().unwrap() < 3000.0,
        "{report}"
    );
}

#[test]
fn accept() {
    let server = Reference::start("accept");
    let report = report(&format!("accept {} --concurrency 20", at(server.port)));
    assert_clean(&report);
}

#[test]
fn a_hello_in_pieces_comes_back_whole() {
    // The echo stops for 100 ms in the middle of a piece: the driver waits for the rest.
    let port = misbehaving(|mut stream| {
        let mut hello = vec![0; 16384];
        stream.read_exact(&mut hello).unwrap();
        assert_eq!(hello[..3], [22, 3, 1]);
        let _ = stream.write_all(&hello[..1500]);
        thread::sleep(Duration::from_millis(100));
        let _ = stream.write_all(&hello[1500..]);
        let _ = stream.read(&mut [0]);
    });
    let report = report(&format!(
        "accept 127.0.0.1:{port} --concurrency 2 --hello 16384 --pieces 16"
    ));
    assert_clean(&report);
    assert!(
        report["latency_us"]["min"].as_f64().unwrap() > 90_000.0,
        "{report}"
    );
}

#[test]
fn game_with_connections_that_come_at_a_rate() {
    let server = Reference::start("game");
    let pid = server.pid();
    let report = report(&format!(
        "game 127.0.0.1:{} --connections 50 --connect-rate 500 --warmup 600ms --duration 1s --observe {pid}",
        server.port
    ));
    assert_eq!(report["errors"], serde_json::json!({}));
    // Two ticks a second for each connection; the edges of the window may cut off one.
    let ticks = report["ticks"].as_u64().unwrap();
    assert!((50..=150).contains(&ticks), "{report}");
    assert!(report["bytes_received"].as_u64().unwrap() >= (ticks - 50) * 512);
    assert!(report["server"]["cpu_s_per_minute"].as_f64().is_some());
}

#[test]
fn idle() {
    let server = Reference::start("echo");
    let arguments = format!("idle {} --connections 200 --observe", at(server.port));
    let report = report(&format!("{arguments} {}", server.pid()));
    assert_eq!(report["connections"], 200);
    assert_eq!(report["errors"], serde_json::json!({}));
    assert!(report["server"]["bytes_per_connection"].as_f64().is_some());
    assert!(report.get("requests").is_none());
}

#[test]
fn idle_after_a_request() {
    let server = Reference::start("http");
    let arguments = format!("idle {} --http --observe {}", at(server.port), server.pid());
    let report = report(&arguments);
    assert_eq!(report["connections"], 100);
    assert_eq!(report["errors"], serde_json::json!({}));
    // This server speaks neither WebSocket nor event streams, so no connection counts as open.
    for other in ["--websocket", "--events --path /any"] {
        let arguments = format!(
            "idle {} {other} --observe {}",
            at(server.port),
            server.pid()
        );
        assert!(failure_of(&arguments).contains("cannot connect"), "{other}");
    }
}

#[test]
fn fanout_in_events() {
    let port = misbehaving(|mut stream| {
        let _ = stream.read(&mut [0; 4096]);
        let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        let mut sent = stream.write_all(head.as_bytes());
        while sent.is_ok() {
            thread::sleep(Duration::from_millis(5));
            let event = format!("id: {:016x}\ndata: {}\n\n", clock::now(), ".".repeat(92));
            let chunk = format!("{:x}\r\n{event}\r\n", event.len());
            sent = stream.write_all(chunk.as_bytes());
        }
    });
    let arguments = format!("fanout {} --events --size 100 --connections 20", at(port));
    assert_clean(&report(&arguments));
    // With another message size, the timestamp is not in its place.
    let arguments = format!("fanout {} --events --size 90 --connections 2", at(port));
    assert!(failure_of(&arguments).contains("mismatch"));
}

#[test]
fn fanout_at_a_rate_and_at_full_speed() {
    for rate in ["50", "0"] {
        let server = Reference::start(&format!("fanout --size 100 --per-second {rate}"));
        let arguments = format!("fanout {} --size 100 --connections 20", at(server.port));
        assert_clean(&report(&arguments));
        let (status, summary) = server.stop(Signal::TERM);
        assert!(status.success());
        let summary: Value = serde_json::from_str(&summary).unwrap();
        assert!(summary["deliveries"].as_u64().unwrap() > 0);
        assert!(summary["deliveries_per_s"].as_f64().unwrap() > 0.0);
    }
}

#[test]
fn listeners_that_never_read_miss_messages_and_the_others_do_not_wait_for_them() {
    let server = Reference::start("fanout --size 1000 --per-second 0 --sndbuf 4096");
    let report = report(&format!(
        "fanout {} --size 1000 --connections 8 --slow 2",
        at(server.port)
    ));
    assert_clean(&report);
    assert_eq!(report["connections"], 8);
    let (_, summary) = server.stop(Signal::TERM);
    let summary: Value = serde_json::from_str(&summary).unwrap();
    // The kernel has room for a few messages to slow listeners, which miss all later ones.
    let broadcasts = summary["broadcasts"].as_u64().unwrap();
    let dropped = summary["dropped"].as_u64().unwrap();
    assert!(dropped >= 2 * broadcasts.saturating_sub(100), "{summary}");
}

#[test]
fn a_signal_ends_the_window_early_with_a_report() {
    let server = Reference::start("echo");
    let driver = start_drive(&format!(
        "echo 127.0.0.1:{} --warmup 0s --duration 1m --connections 4",
        server.port
    ));
    thread::sleep(Duration::from_millis(500));
    send_signal(&driver, Signal::INT);
    let output = finish(driver);
    assert!(output.status.success());
    let report = last_line(&output);
    assert!(report["requests"].as_u64().unwrap() > 0);
    assert!(report["duration_s"].as_f64().unwrap() < 30.0);
}

#[test]
fn progress_goes_to_standard_error() {
    let server = Reference::start("echo");
    let output = drive(&format!(
        "echo 127.0.0.1:{} --warmup 0s --duration 1200ms --connections 2 --progress",
        server.port
    ));
    assert!(output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("measuring"));
    assert_eq!(output.stdout.iter().filter(|&&b| b == b'\n').count(), 1);
}

/// A TLS 1.3 echo server with a self-signed certificate, which runs until the test program ends.
fn tls_echo() -> u16 {
    let certificate = include_bytes!("tls/certificate.der");
    let key = PrivatePkcs8KeyDer::from(&include_bytes!("tls/key.der")[..]);
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(&[&TLS13])
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.as_slice().into()], key.into())
        .unwrap();
    let config = Arc::new(config);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let session = ServerConnection::new(config.clone()).unwrap();
            thread::spawn(move || {
                let mut stream = StreamOwned::new(session, stream);
                let mut buffer = [0; 65536];
                while let Ok(length @ 1..) = stream.read(&mut buffer) {
                    if stream.write_all(&buffer[..length]).is_err() {
                        return;
                    }
                }
            });
        }
    });
    port
}
