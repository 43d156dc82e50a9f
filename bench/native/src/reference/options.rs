//! The command line of `weir-reference`.

use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use lexopt::prelude::*;

use super::fanout::TIMESTAMP_BYTES;
use crate::command_line::{Failure, address, number, text};

/// Most bytes of a send buffer.
const LARGEST_SEND_BUFFER: u64 = 1 << 30;

/// The result of parsing the arguments.
#[derive(Debug, PartialEq, Eq)]
pub enum Invocation {
    /// Print this help text.
    Help(&'static str),
    /// Run this server.
    Serve(Options),
}

/// A server and its address.
#[derive(Debug, PartialEq, Eq)]
pub struct Options {
    /// The server.
    pub command: Command,
    /// The address it listens on.
    pub ip: IpAddr,
    /// Its port; 0 takes a free one.
    pub port: u16,
}

/// The servers.
#[derive(Debug, PartialEq, Eq)]
pub enum Command {
    /// [`super::echo`]
    Echo,
    /// [`super::relay`]
    Relay {
        /// The backend.
        to: SocketAddr,
    },
    /// [`super::accept`]
    Accept,
    /// [`super::http`]
    Http,
    /// [`super::game`]
    Game,
    /// [`super::file`]
    File {
        /// The file.
        path: PathBuf,
    },
    /// [`super::stream::Discard`]
    Discard,
    /// [`super::stream::Chargen`]
    Chargen,
    /// [`super::fanout`]
    Fanout {
        /// Bytes of a message.
        size: usize,
        /// Broadcasts a second; 0 is as fast as possible.
        per_second: u64,
        /// SO_SNDBUF of each connection; `None` keeps the kernel's default.
        send_buffer: Option<usize>,
    },
}

const HELP: &str = "\
weir-reference: servers that show the limit of one core

usage: weir-reference COMMAND --port PORT [--ip ADDRESS] [options]

  echo      echoes bytes
  relay     connects each client to a backend and copies bytes in both directions
  accept    one request, one reply of two bytes, then the client closes
  http      HTTP/1.1 keep-alive, answers \"hello world!\"
  game      sends 512 bytes to every connection every 500 ms, drops all input
  fanout    broadcasts messages to all connections
  file      HTTP/1.1 keep-alive, answers with a file
  discard   receives and drops
  chargen   sends without end, 64 KiB at a time

  --port PORT    port to listen on; 0: a free port
  --ip ADDRESS   address to listen on (127.0.0.1)
  --help         this text; after a command, help for the command

Prints \"ready PORT\" when it listens; SIGTERM and SIGINT end it.";

const HELP_ECHO: &str = "\
usage: weir-reference echo --port PORT [--ip ADDRESS]

Echoes bytes. A connection is not read while the kernel has no room for its echo.";

const HELP_RELAY: &str = "\
usage: weir-reference relay --port PORT --to HOST:PORT [--ip ADDRESS]

Opens one backend connection for each client and copies bytes in both directions. An end of stream is passed on as a
half-close, a failure as a reset; a side that does not read slows the other down.

  --to HOST:PORT   the backend";

const HELP_ACCEPT: &str = "\
usage: weir-reference accept --port PORT [--ip ADDRESS]

Answers the first bytes of a connection with \"ok\" and waits until the client closes or resets.";

const HELP_HTTP: &str = "\
usage: weir-reference http --port PORT [--ip ADDRESS]

Answers every request head with 200 and the twelve bytes \"hello world!\", keep-alive, pipelined or not. Requests with a
body are not supported.";

const HELP_GAME: &str = "\
usage: weir-reference game --port PORT [--ip ADDRESS]

Sends 512 bytes to every connection every 500 ms, the first 500 ms after it was accepted, and drops all input.";

const HELP_FANOUT: &str = "\
usage: weir-reference fanout --port PORT [options] [--ip ADDRESS]

Sends a message to all connections RATE times a second. Its first 8 bytes are the monotonic clock in nanoseconds,
big-endian. A connection without room misses messages. Ends with a JSON object of the deliveries.

  --size BYTES        bytes of a message, at least 8 (128)
  --per-second RATE   broadcasts a second; 0: as fast as the connections read (10)
  --sndbuf BYTES      SO_SNDBUF of each connection (the kernel's default)";

const HELP_FILE: &str = "\
usage: weir-reference file --port PORT --file PATH [--ip ADDRESS]

Answers every request head with 200 and the file, keep-alive, with sendfile(2). Requests with a body are not supported.

  --file PATH   the file, with its length at the start";

const HELP_DISCARD: &str = "\
usage: weir-reference discard --port PORT [--ip ADDRESS]

Receives bytes and drops them.";

const HELP_CHARGEN: &str = "\
usage: weir-reference chargen --port PORT [--ip ADDRESS]

Sends without end, 64 KiB at a time, and closes a connection whose client has ended its side.";

impl Options {
    /// Parses the arguments after the program's name.
    pub fn parse(arguments: Vec<OsString>) -> Result<Invocation, Failure> {
        let mut parser = lexopt::Parser::from_args(arguments);
        let name = match parser.next()? {
            Some(Long("help") | Short('h')) => return Ok(Invocation::Help(HELP)),
            Some(Value(name)) => text("COMMAND", name)?,
            Some(other) => return Err(other.unexpected().into()),
            None => return Err(Failure::Usage("a command is missing".into())),
        };
        let help = help_of(&name)?;
        let (mut ip, mut port) = (IpAddr::V4(Ipv4Addr::LOCALHOST), None);
        let (mut to, mut file) = (None, None);
        let (mut size, mut per_second, mut send_buffer) = (128, 10, None);
        while let Some(argument) = parser.next()? {
            match (argument, name.as_str()) {
                (Long("help") | Short('h'), _) => return Ok(Invocation::Help(help)),
                (Long("port"), _) => {
                    port = Some(number("--port", parser.value()?, 0..=65_535)? as u16);
                }
                (Long("ip"), _) => ip = ip_address(&text("--ip", parser.value()?)?)?,
                (Long("to"), "relay") => to = Some(address("--to", parser.value()?)?),
                (Long("file"), "file") => file = Some(PathBuf::from(parser.value()?)),
                (Long("size"), "fanout") => {
                    let least = TIMESTAMP_BYTES as u64;
                    size = number("--size", parser.value()?, least..=1 << 20)? as usize;
                }
                (Long("per-second"), "fanout") => {
                    per_second = number("--per-second", parser.value()?, 0..=1_000_000)?;
                }
                (Long("sndbuf"), "fanout") => {
                    send_buffer = Some(
                        number("--sndbuf", parser.value()?, 1..=LARGEST_SEND_BUFFER)? as usize,
                    );
                }
                (other, _) => return Err(other.unexpected().into()),
            }
        }
        let command = match name.as_str() {
            "relay" => Command::Relay {
                to: to.ok_or_else(|| missing("--to HOST:PORT"))?,
            },
            "accept" => Command::Accept,
            "http" => Command::Http,
            "game" => Command::Game,
            "fanout" => Command::Fanout {
                size,
                per_second,
                send_buffer,
            },
            "file" => Command::File {
                path: file.ok_or_else(|| missing("--file PATH"))?,
            },
            "discard" => Command::Discard,
            "chargen" => Command::Chargen,
            _ => Command::Echo,
        };
        let port = port.ok_or_else(|| missing("--port PORT"))?;
        Ok(Invocation::Serve(Self { command, ip, port }))
    }
}

fn help_of(name: &str) -> Result<&'static str, Failure> {
    Ok(match name {
        "echo" => HELP_ECHO,
        "relay" => HELP_RELAY,
        "accept" => HELP_ACCEPT,
        "http" => HELP_HTTP,
        "game" => HELP_GAME,
        "fanout" => HELP_FANOUT,
        "file" => HELP_FILE,
        "discard" => HELP_DISCARD,
        "chargen" => HELP_CHARGEN,
        _ => {
            return Err(Failure::Usage(format!(
                "unknown command {name}: echo, relay, accept, http, game, fanout, file, discard or chargen is \
                 needed"
            )));
        }
    })
}

fn ip_address(value: &str) -> Result<IpAddr, Failure> {
    value
        .parse()
        .map_err(|_| Failure::Usage(format!("--ip {value}: an IPv4 or IPv6 address is needed")))
}

fn missing(option: &str) -> Failure {
    Failure::Usage(format!("{option} is missing"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Invocation, Failure> {
        Options::parse(line.split_whitespace().map(OsString::from).collect())
    }

    fn served(line: &str) -> Options {
        match parse(line) {
            Ok(Invocation::Serve(options)) => options,
            other => panic!("{line:?} gave {other:?}"),
        }
    }

    #[test]
    fn commands_and_their_options() {
        let echo = served("echo --port 0");
        assert_eq!(echo.command, Command::Echo);
        assert_eq!((echo.ip, echo.port), (Ipv4Addr::LOCALHOST.into(), 0));
        assert_eq!(served("http --port 80 --ip ::1").ip.to_string(), "::1");
        let to = ([127, 0, 0, 1], 81).into();
        let relay = served("relay --to 127.0.0.1:81 --port=80");
        assert_eq!(relay.command, Command::Relay { to });
        let path = "/tmp/a file".into();
        let file = Options::parse(
            ["file", "--port=0", "--file", "/tmp/a file"]
                .map(OsString::from)
                .into(),
        );
        assert_eq!(
            file,
            Ok(Invocation::Serve(Options {
                command: Command::File { path },
                ..echo
            }))
        );
        assert_eq!(
            served("fanout --size 8 --per-second 0 --port 0").command,
            Command::Fanout {
                size: 8,
                per_second: 0,
                send_buffer: None
            }
        );
        assert_eq!(
            served("fanout --sndbuf 8192 --port 0").command,
            Command::Fanout {
                size: 128,
                per_second: 10,
                send_buffer: Some(8192)
            }
        );
    }

    #[test]
    fn wrong_arguments_are_named() {
        for (line, part) in [
            ("", "a command is missing"),
            ("sing --port 1", "unknown command sing"),
            ("echo", "--port PORT is missing"),
            ("relay --port 0", "--to HOST:PORT is missing"),
            ("file --port 0", "--file PATH is missing"),
            ("discard --port 0 --file x", "--file"),
            ("echo --port 65536", "--port 65536: a whole number"),
            ("echo --port 0 --ip here", "--ip here: an IPv4"),
            ("echo --port 0 --to 127.0.0.1:81", "--to"),
            (
                "fanout --port 0 --size 7",
                "--size 7: a whole number from 8",
            ),
            (
                "fanout --port 0 --sndbuf 0",
                "--sndbuf 0: a whole number from 1",
            ),
            ("echo --port 0 --sndbuf 1", "--sndbuf"),
            ("echo --port", "--port"),
        ] {
            match parse(line) {
                Err(Failure::Usage(message)) => assert!(message.contains(part), "{message}"),
                other => panic!("{line:?} gave {other:?}"),
            }
        }
    }

    #[test]
    fn every_command_has_help() {
        assert_eq!(parse("--help"), Ok(Invocation::Help(HELP)));
        for command in [
            "echo", "relay", "accept", "http", "game", "fanout", "file", "discard", "chargen",
        ] {
            match parse(&format!("{command} --help")) {
                Ok(Invocation::Help(help)) => assert!(help.contains(command)),
                other => panic!("{command} --help gave {other:?}"),
            }
        }
    }
}
