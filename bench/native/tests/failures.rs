//! The driver against servers that misbehave, and with wrong arguments.

#[allow(dead_code, reason = "each test program uses a part")]
mod programs;

use std::io::{Read, Write};
use std::thread;
use std::time::Duration;

use programs::{Reference, at, drive, failure_of, free_port, last_line, misbehaving};
use serde_json::Value;

/// A run that must fail, and the errors it counted.
fn errors_of(arguments: &str) -> Value {
    let output = drive(arguments);
    assert_eq!(output.status.code(), Some(1));
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(errors.lines().count(), 1, "{errors}");
    last_line(&output)["errors"].clone()
}

#[test]
fn silence_is_a_timeout() {
    let port = misbehaving(|_stream| thread::sleep(Duration::from_secs(30)));
    for command in ["echo", "http"] {
        let arguments = format!(
            "{command} 127.0.0.1:{port} --connections 3 --timeout 1s --warmup 0s --duration 10s"
        );
        assert_eq!(errors_of(&arguments)["timeout"], 3);
    }
    let arguments = format!("accept 127.0.0.1:{port} --concurrency 1 --timeout 200ms");
    assert!(errors_of(&arguments)["timeout"].as_u64().unwrap() > 0);
}

#[test]
fn one_wrong_byte_is_a_mismatch() {
    let port = misbehaving(|mut stream| {
        let mut buffer = [0; 4096];
        for n in 0.. {
            let Ok(length @ 1..) = stream.read(&mut buffer) else {
                return;
            };
            buffer[length - 1] ^= u8::from(n == 10);
            if stream.write_all(&buffer[..length]).is_err() {
                return;
            }
        }
    });
    let arguments = format!("echo 127.0.0.1:{port} --connections 3");
    assert!(failure_of(&arguments).contains("mismatch 3"));
}

#[test]
fn what_is_no_response_is_counted() {
    let port = misbehaving(|mut stream| {
        let _ = stream.read(&mut [0; 4096]);
        let _ = stream.write_all(b"no response\r\n\r\n");
        let _ = stream.read(&mut [0; 4096]);
    });
    let arguments = format!("http 127.0.0.1:{port} --connections 3");
    assert!(failure_of(&arguments).contains("bad_response 3"));
}

#[test]
fn a_status_other_than_success_is_an_error() {
    let port = misbehaving(|mut stream| {
        while let Ok(1..) = stream.read(&mut [0; 4096]) {
            let response = b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n";
            if stream.write_all(response).is_err() {
                return;
            }
        }
    });
    let arguments = format!("http {} --connections 2", at(port));
    assert!(errors_of(&arguments)["status"].as_u64().unwrap() > 0);
}

#[test]
fn nobody_there_is_said_in_one_line() {
    let port = free_port();
    for command in ["echo", "http", "accept", "game", "fanout"] {
        let output = drive(&format!("{command} {}", at(port)));
        assert_eq!(output.status.code(), Some(1), "{command}");
        let errors = String::from_utf8(output.stderr).unwrap();
        let expected = format!("weir-drive: cannot connect to 127.0.0.1:{port}: refused\n");
        assert_eq!(errors, expected);
    }
}

#[test]
fn a_wrong_argument_is_one_line_and_exit_code_2() {
    for arguments in ["", "sing", "echo", "echo 127.0.0.1:1 --size 0", "idle a:1"] {
        let output = drive(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments}");
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(errors.lines().count(), 1, "{errors}");
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn a_backend_port_in_use_is_one_line_and_exit_code_1() {
    let taken = Reference::start("echo");
    let output = drive(&format!("proxy 127.0.0.1:1 --backend {}", taken.port));
    assert_eq!(output.status.code(), Some(1));
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!(errors.lines().count(), 1, "{errors}");
    assert!(errors.contains(&taken.port.to_string()));
}

#[test]
fn too_many_connections_for_the_descriptors_are_refused_at_once() {
    let output = drive("echo 127.0.0.1:1 --connections 1000000");
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    // If the limit is even higher, the connection is refused.
    assert!(
        errors.contains("descriptors") || errors.contains("cannot"),
        "{errors}"
    );
}
