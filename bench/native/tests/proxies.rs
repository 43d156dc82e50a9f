//! The driver against proxies: a reference server that relays to the driver's own backend.

#[allow(dead_code, reason = "each test program uses a part")]
mod programs;

use programs::{Reference, assert_clean, at, finish, first_error_line, free_port, last_line};
use programs::{report, start_drive};

#[test]
fn proxy_that_is_started_after_the_backend() {
    let port = free_port();
    let arguments = format!("proxy {} --backend 0 --connections 20", at(port));
    let mut driver = start_drive(&arguments);
    let line = first_error_line(&mut driver);
    let backend = line.trim().strip_prefix("backend ready ").unwrap();
    let _proxy = Reference::start_on(port, &format!("relay --to 127.0.0.1:{backend}"));
    let output = finish(driver);
    assert!(output.status.success());
    let report = last_line(&output);
    assert_clean(&report);
    assert!(report["bytes_verified"].as_u64().unwrap() > 0);
}

#[test]
fn short_idle_and_timed_connections_through_a_proxy() {
    let backend = free_port();
    let proxy = Reference::start(&format!("relay --to 127.0.0.1:{backend}"));
    let target = format!("{} --backend {backend}", at(proxy.port));
    for (command, options) in [
        ("accept", "--concurrency 10"),
        ("proxy", "--connections 10 --rate 2000"),
    ] {
        assert_clean(&report(&format!("{command} {target} {options}")));
    }
    let pid = proxy.pid();
    let report = report(&format!("idle {target} --connections 50 --observe {pid}"));
    assert_eq!(report["connections"], 50);
    assert_eq!(report["errors"], serde_json::json!({}));
}

#[test]
fn bulk_through_a_proxy_ends_after_so_many_bytes() {
    const WANTED: u64 = 100_000_000;
    for command in ["download", "upload"] {
        let port = free_port();
        let arguments = format!(
            "{command} 127.0.0.1:{port} --backend 0 --bytes {WANTED} --connections 1 --warmup 0s --duration 15s"
        );
        let mut driver = start_drive(&arguments);
        let line = first_error_line(&mut driver);
        let backend = line.trim().strip_prefix("backend ready ").unwrap();
        let _proxy = Reference::start_on(port, &format!("relay --to 127.0.0.1:{backend}"));
        let output = finish(driver);
        assert!(output.status.success(), "{command}");
        let report = last_line(&output);
        assert_eq!(report["errors"], serde_json::json!({}), "{report}");
        assert!(report["bytes_transferred"].as_u64().unwrap() >= WANTED);
        assert!(
            report["duration_s"].as_f64().unwrap() < 15.0,
            "{command} {report}"
        );
    }
}
