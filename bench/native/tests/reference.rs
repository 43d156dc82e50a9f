//! The reference servers, byte by byte.

#[allow(dead_code, reason = "each test program uses a part")]
mod programs;

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use programs::{Reference, free_port};
use rustix::net::sockopt;
use rustix::process::Signal;

const HELLO: &str =
    "HTTP/1.1 200 OK\r\nContent-Length: 12\r\nConnection: Keep-Alive\r\n\r\nhello world!";

fn read_exactly(stream: &mut TcpStream, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    stream.read_exact(&mut bytes).unwrap();
    bytes
}

/// Bytes in which a loss or a swap is visible.
fn numbered(length: usize) -> Vec<u8> {
    (0..length as u32 / 4).flat_map(u32::to_be_bytes).collect()
}

/// Writes until the peer stops reading, and returns the number of bytes written.
fn write_until_stuck(stream: &mut TcpStream) -> usize {
    stream
        .set_write_timeout(Some(Duration::from_millis(300)))
        .unwrap();
    let chunk = vec![0; 64 * 1024];
    let mut total = 0;
    loop {
        match stream.write(&chunk) {
            Ok(written) => total += written,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock);
                return total;
            }
        }
    }
}

#[test]
fn echo_keeps_every_byte_for_a_reader_that_is_late() {
    let server = Reference::start("echo");
    let mut stream = server.connect();
    let bytes = numbered(32 << 20);
    let mut writer = stream.try_clone().unwrap();
    let sent = bytes.clone();
    let writing = thread::spawn(move || {
        writer.write_all(&sent).unwrap();
        writer.shutdown(Shutdown::Write).unwrap();
    });
    thread::sleep(Duration::from_millis(300));
    let mut received = Vec::new();
    stream.read_to_end(&mut received).unwrap();
    writing.join().unwrap();
    assert!(received == bytes);
}

#[test]
fn echo_does_not_read_what_it_cannot_write() {
    let server = Reference::start("echo");
    let mut stuck = server.connect();
    // At most the kernel's buffers of four sockets; without a limit the writing would never end.
    assert!(write_until_stuck(&mut stuck) < 64 << 20);
    let mut other = server.connect();
    other.write_all(b"still here").unwrap();
    assert_eq!(read_exactly(&mut other, 10), b"still here");
}

#[test]
fn http_answers_requests_that_come_in_pieces_and_in_bunches() {
    let server = Reference::start("http");
    let mut stream = server.connect();
    stream.set_nodelay(true).unwrap();
    for piece in "GET / HTTP/1.1\r\nHost: a\r\n\r\n".split_inclusive('\r') {
        stream.write_all(piece.as_bytes()).unwrap();
        thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(read_exactly(&mut stream, HELLO.len()), HELLO.as_bytes());
    let many = 5000;
    let requests = "GET / HTTP/1.1\r\n\r\n".repeat(many);
    let mut writer = stream.try_clone().unwrap();
    let writing = thread::spawn(move || writer.write_all(requests.as_bytes()).unwrap());
    let expected = HELLO.repeat(many);
    assert!(read_exactly(&mut stream, expected.len()) == expected.as_bytes());
    writing.join().unwrap();
}

#[test]
fn http_owes_nothing_to_a_reader_that_is_late() {
    let server = Reference::start("http");
    let mut stream = server.connect();
    let many = 400_000;
    let mut writer = stream.try_clone().unwrap();
    let writing = thread::spawn(move || {
        let requests = "GET /\r\n\r\n".repeat(many);
        writer.write_all(requests.as_bytes()).unwrap();
    });
    thread::sleep(Duration::from_millis(300));
    let expected = HELLO.repeat(many);
    assert!(read_exactly(&mut stream, expected.len()) == expected.as_bytes());
    writing.join().unwrap();
}

#[test]
fn accept_answers_once_and_waits_for_the_client() {
    let server = Reference::start("accept");
    let mut stream = server.connect();
    stream.write_all(b"a request").unwrap();
    assert_eq!(read_exactly(&mut stream, 2), b"ok");
    stream.write_all(b"more").unwrap();
    stream
        .set_read_timeout(Some(Duration::from_millis(100)))
        .unwrap();
    let error = stream.read(&mut [0; 8]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
}

#[test]
fn game_ticks_every_half_second() {
    let server = Reference::start("game");
    let mut stream = server.connect();
    let start = Instant::now();
    for _ in 0..2 {
        assert_eq!(read_exactly(&mut stream, 512), [b'.'; 512]);
        stream.write_all(&[0; 16]).unwrap();
    }
    assert!(start.elapsed() >= Duration::from_millis(950));
}

#[test]
fn fanout_begins_with_the_time() {
    let server = Reference::start("fanout --size 32 --per-second 100");
    let mut stream = server.connect();
    let mut last = 0;
    for _ in 0..5 {
        let message = read_exactly(&mut stream, 32);
        let time = u64::from_be_bytes(message[..8].try_into().unwrap());
        assert!(time > last);
        assert_eq!(message[8..], [b'.'; 24]);
        last = time;
    }
    assert!(last <= weir_bench_native::clock::now());
}

/// A relay, its backend's listener and one connection through both.
fn relayed() -> (Reference, TcpStream, TcpStream) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let relay = Reference::start(&format!("relay --to 127.0.0.1:{port}"));
    let client = relay.connect();
    let (backend, _) = listener.accept().unwrap();
    let patience = Some(Duration::from_secs(20));
    backend.set_read_timeout(patience).unwrap();
    backend.set_write_timeout(patience).unwrap();
    (relay, client, backend)
}

#[test]
fn relay_passes_half_closes_through() {
    let (_relay, mut client, mut backend) = relayed();
    client.write_all(b"question").unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    let mut question = String::new();
    backend.read_to_string(&mut question).unwrap();
    assert_eq!(question, "question");
    backend.write_all(b"answer").unwrap();
    drop(backend);
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    assert_eq!(answer, "answer");
}

#[test]
fn relay_keeps_every_byte_in_both_directions() {
    let (_relay, client, backend) = relayed();
    let sides = [client, backend];
    let bytes = numbered(16 << 20);
    thread::scope(|scope| {
        for stream in &sides {
            scope.spawn(|| {
                (&*stream).write_all(&bytes).unwrap();
                stream.shutdown(Shutdown::Write).unwrap();
            });
            scope.spawn(|| {
                let mut received = Vec::new();
                thread::sleep(Duration::from_millis(200));
                (&*stream).read_to_end(&mut received).unwrap();
                assert!(received == bytes);
            });
        }
    });
}

#[test]
fn relay_slows_down_a_sender_whose_receiver_does_not_read() {
    let (_relay, mut client, _backend) = relayed();
    assert!(write_until_stuck(&mut client) < 64 << 20);
}

#[test]
fn relay_passes_a_reset_on() {
    let (_relay, mut client, backend) = relayed();
    sockopt::set_socket_linger(&backend, Some(Duration::ZERO)).unwrap();
    drop(backend);
    let error = client.read(&mut [0; 8]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}

#[test]
fn relay_closes_the_client_when_nobody_is_behind_it() {
    let relay = Reference::start(&format!("relay --to 127.0.0.1:{}", free_port()));
    let mut client = relay.connect();
    assert!(!matches!(client.read(&mut [0; 8]), Ok(1..)));
}

#[test]
fn signals_end_every_server_with_success() {
    for command in [
        "echo",
        "relay --to 127.0.0.1:1",
        "accept",
        "http",
        "game",
        "fanout",
    ] {
        for signal in [Signal::TERM, Signal::INT] {
            let server = Reference::start(command);
            let _open = server.connect();
            let (status, _) = server.stop(signal);
            assert!(status.success(), "{command}");
        }
    }
}

fn refused(arguments: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_weir-reference"))
        .args(arguments)
        .output()
        .unwrap();
    assert!(output.stdout.is_empty());
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!(errors.lines().count(), 1, "{errors}");
    (output.status.code(), errors)
}

#[test]
fn a_port_in_use_is_one_line_and_exit_code_1() {
    let taken = Reference::start("echo");
    let port = taken.port.to_string();
    let (code, errors) = refused(&["echo", "--port", &port]);
    assert_eq!(code, Some(1));
    assert!(
        errors.contains(&format!("cannot listen on 127.0.0.1:{port}")),
        "{errors}"
    );
}

#[test]
fn a_wrong_argument_is_one_line_and_exit_code_2() {
    for arguments in [&[][..], &["sing"], &["echo"], &["echo", "--port", "x"]] {
        assert_eq!(refused(arguments).0, Some(2));
    }
}

#[test]
fn a_file_is_sent_whole_again_and_again() {
    let directory = env!("CARGO_TARGET_TMPDIR");
    let path = format!("{directory}/a_file_is_sent_whole");
    // More than the kernel's buffers hold.
    let bytes = numbered(16 << 20);
    std::fs::write(&path, &bytes).unwrap();
    let server = Reference::start(&format!("file --file {path}"));
    let mut stream = server.connect();
    let request = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    stream.write_all(&request.repeat(3)).unwrap();
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", bytes.len());
    for _ in 0..3 {
        assert_eq!(read_exactly(&mut stream, head.len()), head.as_bytes());
        assert!(read_exactly(&mut stream, bytes.len()) == bytes);
    }
    stream.write_all(request).unwrap();
    assert_eq!(read_exactly(&mut stream, head.len()), head.as_bytes());
    assert!(read_exactly(&mut stream, bytes.len()) == bytes);
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn a_file_that_is_not_there_is_an_error() {
    let output = Command::new(env!("CARGO_BIN_EXE_weir-reference"))
        .args(["file", "--port", "0", "--file", "/nowhere/at all"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(errors.contains("cannot open /nowhere/at all"), "{errors}");
}

#[test]
fn discard_takes_all_and_says_nothing() {
    let server = Reference::start("discard");
    let mut stream = server.connect();
    stream.write_all(&numbered(32 << 20)).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(stream.read(&mut [0; 10]).unwrap(), 0);
}

#[test]
fn chargen_sends_until_its_client_goes_and_serves_others_meanwhile() {
    let server = Reference::start("chargen");
    let _stuck = server.connect();
    for _ in 0..2 {
        let mut stream = server.connect();
        assert_eq!(read_exactly(&mut stream, 8 << 20), vec![b'c'; 8 << 20]);
    }
}
