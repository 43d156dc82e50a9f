use super::*;
use crate::drive::load::{Chat, Listening, Said};

fn parse(line: &str) -> Result<Invocation, Failure> {
    super::parse(line.split_whitespace().map(OsString::from).collect())
}

fn message(frame: Frame, size: usize) -> Message {
    Message { frame, size }
}

fn driven(line: &str) -> Run {
    match parse(line) {
        Ok(Invocation::Drive(run)) => run,
        other => panic!("{line:?} gave {other:?}"),
    }
}

#[test]
fn defaults() {
    let Run { command, load } = driven("echo 127.0.0.1:80");
    assert_eq!(
        command,
        Command::Echo {
            message: message(Frame::None, 64),
            depth: 1,
            carrier: Carrier::Plain
        }
    );
    assert_eq!(load.connections, 100);
    assert_eq!(load.duration, Duration::from_secs(3));
    assert_eq!(load.warmup, Duration::from_secs(1));
    assert_eq!(load.timeout, Duration::from_secs(5));
    assert_eq!((load.observe, load.progress), (vec![], false));
    let idle = driven("idle 127.0.0.1:80 --observe 1");
    assert_eq!(idle.load.warmup, Duration::from_secs(2));
    assert_eq!(
        driven("fanout 127.0.0.1:80").command,
        Command::Fanout {
            size: 128,
            slow: 0,
            broadcast: Broadcast::Bytes
        }
    );
    let download = driven("download 127.0.0.1:80");
    assert_eq!(download.command, Command::Download { backend: None });
    assert_eq!(download.load.most_bytes, None);
}

#[test]
fn options_come_in_any_order() {
    let Run { command, load } = driven(
        "proxy --size=1 --backend 0 --connections 8 127.0.0.1:80 --depth 4 \
         --duration 500ms --warmup 0s --timeout 1s --observe 7 --observe 8 --progress",
    );
    assert_eq!(
        command,
        Command::Proxy {
            message: message(Frame::None, 1),
            depth: 4,
            backend: 0
        }
    );
    assert_eq!(
        driven("echo 127.0.0.1:80 --frame line --rate 500 --size 9").command,
        Command::MessagesAtRate {
            message: message(Frame::Line, 9),
            rate: 500,
            backend: None
        }
    );
    assert_eq!(
        driven("proxy 127.0.0.1:80 --rate 500 --backend 81").command,
        Command::MessagesAtRate {
            message: message(Frame::None, 64),
            rate: 500,
            backend: Some(81)
        }
    );
    assert_eq!(
        driven("echo 127.0.0.1:80 --tls --frame 4 --depth 2").command,
        Command::Echo {
            message: message(Frame::Length4, 64),
            depth: 2,
            carrier: Carrier::Tls
        }
    );
    assert_eq!(load.connections, 8);
    assert_eq!(load.duration, Duration::from_millis(500));
    assert_eq!(load.warmup, Duration::ZERO);
    assert_eq!((load.observe, load.progress), (vec![7, 8], true));
}

#[test]
fn options_of_other_commands() {
    assert_eq!(
        driven("fanout 127.0.0.1:80 --slow 3 --connections 4 --size 8 --websocket").command,
        Command::Fanout {
            size: 8,
            slow: 3,
            broadcast: Broadcast::WebSocket
        }
    );
    assert_eq!(
        driven("idle 127.0.0.1:80 --observe 1 --events --path /messages").command,
        Command::Idle {
            held: Held::Events,
            path: "/messages".into(),
            backend: None
        }
    );
    assert_eq!(
        driven("idle 127.0.0.1:80 --observe 1 --backend 81").command,
        Command::Idle {
            held: Held::Open,
            path: "/".into(),
            backend: Some(81)
        }
    );
    assert_eq!(
        driven("http 127.0.0.1:80 --rate 7").command,
        Command::RequestsAtRate { rate: 7 }
    );
    let upload = driven("upload 127.0.0.1:80 --bytes 1073741824 --backend 81");
    assert_eq!(upload.command, Command::Upload { backend: Some(81) });
    assert_eq!(upload.load.most_bytes, Some(1 << 30));
}

#[test]
fn options_of_accept() {
    let accept = driven("accept 127.0.0.1:80 --concurrency 3");
    assert_eq!(accept.load.connections, 3);
    assert_eq!(
        accept.command,
        Command::Accept {
            backend: None,
            hello: None
        }
    );
    let accept = driven("accept 127.0.0.1:80 --backend 81");
    assert_eq!(
        accept.command,
        Command::Accept {
            backend: Some(81),
            hello: None
        }
    );
    let accept = driven("accept 127.0.0.1:80 --hello 16384 --pieces 16");
    assert_eq!(
        accept.command,
        Command::Accept {
            backend: None,
            hello: Some(Hello {
                bytes: 16384,
                pieces: 16
            })
        }
    );
}

#[test]
fn options_of_chat() {
    let chat = driven("chat 127.0.0.1:80 --rooms 1 --at-a-time 4 --websocket");
    assert!(matches!(
        chat.command,
        Command::Chat(Chat {
            rooms: 1,
            said: Said::AtATime(4),
            carrier: Listening::WebSocket,
            ..
        })
    ));
    let chat = driven("chat 127.0.0.1:80 --several --speakers 10 --slow 3");
    assert!(matches!(
        chat.command,
        Command::Chat(Chat {
            rooms: 20,
            speakers: 10,
            carrier: Listening::Several,
            slow: 3,
            ..
        })
    ));
}

/// A command line, and what its error says.
const WRONG: &[(&str, &str)] = &[
    ("", "a command is missing"),
    ("sing 127.0.0.1:80", "unknown command sing"),
    ("echo", "HOST:PORT is missing"),
    ("echo 127.0.0.1", "127.0.0.1: HOST:PORT is needed"),
    ("echo 127.0.0.1:80 127.0.0.1:81", "127.0.0.1:81"),
    ("echo 127.0.0.1:80 --connections 0", "--connections 0: a"),
    ("echo 127.0.0.1:80 --duration 0s", "--duration 0: a"),
    ("echo 127.0.0.1:80 --duration 3", "--duration 3: a"),
    ("echo 127.0.0.1:80 --backend 81", "--backend"),
    ("accept 127.0.0.1:80 --connections 9", "--connections"),
    ("proxy 127.0.0.1:80", "--backend PORT is missing"),
    (
        "proxy 127.0.0.1:80 --backend 81 --rate 1 --depth 2",
        "--rate does not go with --depth",
    ),
    (
        "idle 127.0.0.1:80 --observe 1 --backend 81 --http",
        "--backend does not go with",
    ),
    ("idle 127.0.0.1:80", "--observe PID is missing"),
    ("fanout 127.0.0.1:80 --size 7", "--size 7: a"),
    (
        "fanout 127.0.0.1:80 --slow 100",
        "--slow 100: at least one of 100 connections",
    ),
    ("echo 127.0.0.1:80 --slow 1", "--slow"),
    ("download 127.0.0.1:80 --bytes 0", "--bytes 0: a"),
    ("echo 127.0.0.1:80 --bytes 1", "--bytes"),
    ("echo 127.0.0.1:80 --frame 2", "--frame 2: none, 4 or line"),
    ("echo 127.0.0.1:80 --rate 0", "--rate 0: a"),
    ("echo 127.0.0.1:80 --rate 1 --tls", "--rate"),
    ("echo 127.0.0.1:80 --rate 1 --depth 1", "--rate"),
    ("http 127.0.0.1:80 --tls", "--tls"),
    ("echo 127.0.0.1:80 --websocket --tls", "--websocket"),
    ("echo 127.0.0.1:80 --websocket --frame 4", "--websocket"),
    ("echo 127.0.0.1:80 --websocket --rate 9", "--websocket"),
    ("http 127.0.0.1:80 --websocket", "--websocket"),
    ("fanout 127.0.0.1:80 --websocket --events", "--websocket"),
    ("http 127.0.0.1:80 --rate 9 --depth 2", "--rate"),
    ("idle 127.0.0.1:80 --observe 1 --http --events", "one of"),
    ("idle 127.0.0.1:80 --observe 1 --path /", "--path needs"),
    ("idle 127.0.0.1:80 --observe 1 --path a", "--path a: a path"),
    ("upload 127.0.0.1:80 --size 1", "--size"),
    ("accept 127.0.0.1:80 --hello 20000", "--hello 20000: a"),
    ("accept 127.0.0.1:80 --pieces 2", "--pieces needs --hello"),
    ("chat 127.0.0.1:80 --at-a-time 4", "--rooms 1"),
    (
        "chat 127.0.0.1:80 --several --events",
        "--several does not go with --events",
    ),
    ("chat 127.0.0.1:80 --slow 9 --churn 1", "--churn"),
    ("chat 127.0.0.1:80 --slow 100", "at least one"),
    (
        "chat 127.0.0.1:80 --rooms 1 --at-a-time 4 --speakers 2",
        "--speakers",
    ),
    (
        "chat 127.0.0.1:80 --rooms 1 --at-a-time 4 --rate 9",
        "--at-a-time does not go with --rate",
    ),
];

#[test]
fn wrong_arguments_are_named() {
    for &(line, part) in WRONG {
        match parse(line) {
            Err(Failure::Usage(message)) => assert!(message.contains(part), "{message}"),
            other => panic!("{line:?} gave {other:?}"),
        }
    }
}

#[test]
fn every_command_has_help() {
    assert_eq!(parse("--help"), Ok(Invocation::Help(help::HELP)));
    for command in [
        "echo", "http", "proxy", "accept", "game", "idle", "fanout", "chat", "download", "upload",
    ] {
        match parse(&format!("{command} --help")) {
            Ok(Invocation::Help(help)) => {
                assert!(help.starts_with(&format!("usage: weir-drive {command} ")));
                assert!(help.contains("--duration"));
            }
            other => panic!("{command} --help gave {other:?}"),
        }
    }
}
