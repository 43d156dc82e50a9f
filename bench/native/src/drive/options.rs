//! The command line of `weir-drive`.

use std::ffi::OsString;
use std::time::Duration;

use lexopt::prelude::*;

use super::client_hello::{Hello, SIZES};
use super::help;
use super::load::{Broadcast, Carrier, Command, Held, Load, Run};
use super::pattern::{Frame, Message};
use super::target::Target;
use crate::command_line::{Failure, address, duration, number, text};
use crate::reference::fanout::TIMESTAMP_BYTES;

/// Most bytes of a message.
const LARGEST_SIZE: u64 = 1 << 20;

/// Most bytes of a window.
const MOST_BYTES: u64 = 1 << 50;

const MOST_CONNECTIONS: u64 = 1_000_000;

/// The result of parsing the arguments.
#[derive(Debug, PartialEq, Eq)]
pub enum Invocation {
    /// Print this help text.
    Help(&'static str),
    /// Run this load.
    Drive(Run),
}

#[derive(Default)]
struct Given {
    target: Option<OsString>,
    connections: Option<u64>,
    warmup: Option<Duration>,
    duration: Option<Duration>,
    timeout: Option<Duration>,
    observe: Vec<u32>,
    progress: bool,
    size: Option<u64>,
    frame: Frame,
    depth: Option<u64>,
    tls: bool,
    http: bool,
    websocket: bool,
    events: bool,
    path: Option<String>,
    rate: Option<u64>,
    backend: Option<u64>,
    bytes: Option<u64>,
    slow: Option<u64>,
    connect_rate: Option<u64>,
    rooms: Option<u64>,
    speakers: Option<u64>,
    several: bool,
    churn: Option<u64>,
    at_a_time: Option<u64>,
    hello: Option<u64>,
    pieces: Option<u64>,
}

/// Parses the arguments after the program's name.
pub fn parse(arguments: Vec<OsString>) -> Result<Invocation, Failure> {
    let mut parser = lexopt::Parser::from_args(arguments);
    let name = match parser.next()? {
        Some(Long("help") | Short('h')) => return Ok(Invocation::Help(help::HELP)),
        Some(Value(name)) => text("COMMAND", name)?,
        Some(other) => return Err(other.unexpected().into()),
        None => return Err(Failure::Usage("a command is missing".into())),
    };
    let text_of_help = match name.as_str() {
        "echo" => help::HELP_ECHO,
        "http" => help::HELP_HTTP,
        "proxy" => help::HELP_PROXY,
        "accept" => help::HELP_ACCEPT,
        "game" => help::HELP_GAME,
        "idle" => help::HELP_IDLE,
        "fanout" => help::HELP_FANOUT,
        "chat" => help::HELP_CHAT,
        "download" => help::HELP_DOWNLOAD,
        "upload" => help::HELP_UPLOAD,
        _ => {
            return Err(Failure::Usage(format!(
                "unknown command {name}: echo, http, proxy, accept, game, idle, fanout, chat, download or upload is \
                 needed"
            )));
        }
    };
    match Given::read(&name, &mut parser)? {
        Some(given) => given.complete(&name).map(Invocation::Drive),
        None => Ok(Invocation::Help(text_of_help)),
    }
}

impl Given {
    /// `None`: `--help` was given.
    fn read(command: &str, parser: &mut lexopt::Parser) -> Result<Option<Self>, Failure> {
        let mut given = Self::default();
        while let Some(argument) = parser.next()? {
            match (argument, command) {
                (Long("help") | Short('h'), _) => return Ok(None),
                (Long("concurrency"), "accept") => {
                    given.connections =
                        Some(number("--concurrency", parser.value()?, 1..=100_000)?);
                }
                (Long("connections"), _) if command != "accept" => {
                    given.connections = Some(number(
                        "--connections",
                        parser.value()?,
                        1..=MOST_CONNECTIONS,
                    )?);
                }
                (Long("duration"), _) => {
                    given.duration = Some(positive("--duration", parser.value()?)?);
                }
                (Long("warmup"), _) => given.warmup = Some(duration("--warmup", parser.value()?)?),
                (Long("timeout"), _) => {
                    given.timeout = Some(positive("--timeout", parser.value()?)?);
                }
                (Long("observe"), _) => {
                    let pid = number("--observe", parser.value()?, 1..=1 << 22)?;
                    given.observe.push(pid as u32);
                }
                (Long("progress"), _) => given.progress = true,
                (Long("size"), "echo" | "proxy") => {
                    given.size = Some(number("--size", parser.value()?, 1..=LARGEST_SIZE)?);
                }
                (Long("size"), "chat") => {
                    given.size = Some(number("--size", parser.value()?, 32..=100_000)?);
                }
                (Long("rooms"), "chat") => {
                    given.rooms = Some(number("--rooms", parser.value()?, 1..=1_000_000)?);
                }
                (Long("speakers"), "chat") => {
                    given.speakers = Some(number("--speakers", parser.value()?, 1..=1000)?);
                }
                (Long("several"), "chat") => given.several = true,
                (Long("churn"), "chat") => {
                    given.churn = Some(number("--churn", parser.value()?, 0..=100_000)?);
                }
                (Long("at-a-time"), "chat") => {
                    given.at_a_time = Some(number("--at-a-time", parser.value()?, 1..=1000)?);
                }
                (Long("hello"), "accept") => {
                    given.hello = Some(number("--hello", parser.value()?, SIZES)?);
                }
                (Long("pieces"), "accept") => {
                    given.pieces = Some(number("--pieces", parser.value()?, 1..=64)?);
                }
                (Long("size"), "fanout") => {
                    let least = TIMESTAMP_BYTES as u64;
                    given.size = Some(number("--size", parser.value()?, least..=LARGEST_SIZE)?);
                }
                (Long("depth"), "echo" | "http" | "proxy") => {
                    given.depth = Some(number("--depth", parser.value()?, 1..=1024)?);
                }
                (Long("frame"), "echo") => {
                    given.frame = frame(text("--frame", parser.value()?)?)?;
                }
                (Long("tls"), "echo") => given.tls = true,
                (Long("websocket"), "echo" | "fanout" | "idle" | "chat") => given.websocket = true,
                (Long("events"), "fanout" | "idle" | "chat") => given.events = true,
                (Long("http"), "idle") => given.http = true,
                (Long("path"), "idle") => given.path = Some(path(parser.value()?)?),
                (Long("rate"), "echo" | "http" | "proxy" | "chat") => {
                    given.rate = Some(number("--rate", parser.value()?, 1..=10_000_000)?);
                }
                (Long("backend"), "accept" | "download" | "idle" | "proxy" | "upload") => {
                    given.backend = Some(number("--backend", parser.value()?, 0..=65_535)?);
                }
                (Long("bytes"), "download" | "upload") => {
                    given.bytes = Some(number("--bytes", parser.value()?, 1..=MOST_BYTES)?);
                }
                (Long("slow"), "fanout" | "chat") => {
                    given.slow = Some(number("--slow", parser.value()?, 0..=MOST_CONNECTIONS)?);
                }
                (Long("connect-rate"), _) if !matches!(command, "accept" | "chat") => {
                    given.connect_rate =
                        Some(number("--connect-rate", parser.value()?, 1..=1_000_000)?);
                }
                (Value(value), _) if given.target.is_none() => given.target = Some(value),
                (other, _) => return Err(other.unexpected().into()),
            }
        }
        Ok(Some(given))
    }

    fn complete(self, name: &str) -> Result<Run, Failure> {
        let command = self.command(name)?;
        let connections = self.connections();
        let target = self.target.ok_or_else(|| missing("HOST:PORT"))?;
        // The memory and timers of an idle server need a moment to settle.
        let warmup = Duration::from_secs(if name == "idle" { 2 } else { 1 });
        let load = Load {
            target: Target::new(address("HOST:PORT", target)?, connections),
            connections,
            connect_rate: self.connect_rate,
            warmup: self.warmup.unwrap_or(warmup),
            duration: self.duration.unwrap_or(Duration::from_secs(3)),
            most_bytes: self.bytes,
            timeout: self.timeout.unwrap_or(Duration::from_secs(5)),
            observe: self.observe,
            progress: self.progress,
        };
        Ok(Run { command, load })
    }

    fn command(&self, name: &str) -> Result<Command, Failure> {
        let backend = self.backend();
        let slow = self.slow.unwrap_or(0);
        let connections = self.connections();
        Ok(match name {
            "http" => match self.rate {
                None => Command::Http {
                    depth: self.depth(),
                },
                Some(rate) if self.depth.is_none() => Command::RequestsAtRate { rate },
                Some(_) => return Err(Failure::Usage("--rate does not go with --depth".into())),
            },
            "proxy" => self.proxy()?,
            "accept" => Command::Accept {
                backend,
                hello: self.hello()?,
            },
            "game" => Command::Game,
            "idle" if self.observe.is_empty() => return Err(missing("--observe PID")),
            "idle" if backend.is_some() && self.held()? != Held::Open => {
                return Err(Failure::Usage(
                    "--backend does not go with --http, --websocket or --events".into(),
                ));
            }
            "idle" => Command::Idle {
                held: self.held()?,
                path: self.path.clone().unwrap_or_else(|| "/".into()),
                backend,
            },
            "fanout" | "chat" if slow >= u64::from(connections) => {
                return Err(Failure::Usage(format!(
                    "--slow {slow}: at least one of {connections} connections must read"
                )));
            }
            "fanout" => Command::Fanout {
                size: self.size.unwrap_or(128) as usize,
                slow: slow as u32,
                broadcast: self.broadcast()?,
            },
            "chat" => Command::Chat(self.chat()?),
            "download" => Command::Download { backend },
            "upload" => Command::Upload { backend },
            _ => self.echo()?,
        })
    }
}

impl Given {
    fn connections(&self) -> u32 {
        self.connections.unwrap_or(100) as u32
    }

    fn depth(&self) -> usize {
        self.depth.unwrap_or(1) as usize
    }

    fn backend(&self) -> Option<u16> {
        self.backend.map(|port| port as u16)
    }

    fn message(&self) -> Message {
        Message {
            frame: self.frame,
            size: self.size.unwrap_or(64) as usize,
        }
    }

    fn proxy(&self) -> Result<Command, Failure> {
        let backend = self.backend();
        let port = backend.ok_or_else(|| missing("--backend PORT"))?;
        let message = self.message();
        match self.rate {
            None => Ok(Command::Proxy {
                message,
                depth: self.depth(),
                backend: port,
            }),
            Some(rate) if self.depth.is_none() => Ok(Command::MessagesAtRate {
                message,
                rate,
                backend,
            }),
            Some(_) => Err(Failure::Usage("--rate does not go with --depth".into())),
        }
    }

    fn echo(&self) -> Result<Command, Failure> {
        let message = self.message();
        let carrier = self.carrier()?;
        match self.rate {
            None => Ok(Command::Echo {
                message,
                depth: self.depth(),
                carrier,
            }),
            Some(rate) if self.depth.is_none() && carrier == Carrier::Plain => {
                Ok(Command::MessagesAtRate {
                    message,
                    rate,
                    backend: None,
                })
            }
            Some(_) => Err(Failure::Usage(
                "--rate does not go with --depth, --tls or --websocket".into(),
            )),
        }
    }

    fn carrier(&self) -> Result<Carrier, Failure> {
        match (self.tls, self.websocket, self.frame) {
            (false, false, _) => Ok(Carrier::Plain),
            (true, false, _) => Ok(Carrier::Tls),
            (false, true, Frame::None) => Ok(Carrier::WebSocket),
            _ => Err(Failure::Usage(
                "--websocket does not go with --tls or --frame".into(),
            )),
        }
    }

    fn hello(&self) -> Result<Option<Hello>, Failure> {
        match (self.hello, self.pieces) {
            (None, Some(_)) => Err(Failure::Usage("--pieces needs --hello".into())),
            (None, None) => Ok(None),
            (Some(bytes), pieces) => Ok(Some(Hello {
                bytes: bytes as usize,
                pieces: pieces.unwrap_or(1) as usize,
            })),
        }
    }

    fn broadcast(&self) -> Result<Broadcast, Failure> {
        match (self.websocket, self.events) {
            (false, false) => Ok(Broadcast::Bytes),
            (true, false) => Ok(Broadcast::WebSocket),
            (false, true) => Ok(Broadcast::Events),
            _ => Err(Failure::Usage(
                "--websocket does not go with --events".into(),
            )),
        }
    }

    fn held(&self) -> Result<Held, Failure> {
        match (self.http, self.websocket, self.events) {
            (false, false, false) if self.path.is_some() => Err(Failure::Usage(
                "--path needs --http, --websocket or --events".into(),
            )),
            (false, false, false) => Ok(Held::Open),
            (true, false, false) => Ok(Held::Http),
            (false, true, false) => Ok(Held::WebSocket),
            (false, false, true) => Ok(Held::Events),
            _ => Err(Failure::Usage(
                "one of --http, --websocket and --events is needed, or none".into(),
            )),
        }
    }
}

fn path(value: OsString) -> Result<String, Failure> {
    let path = text("--path", value)?;
    if path.starts_with('/') && path.bytes().all(|byte| byte.is_ascii_graphic()) {
        Ok(path)
    } else {
        Err(Failure::Usage(format!(
            "--path {path}: a path is needed, such as /messages"
        )))
    }
}

fn frame(name: String) -> Result<Frame, Failure> {
    match name.as_str() {
        "none" => Ok(Frame::None),
        "4" => Ok(Frame::Length4),
        "line" => Ok(Frame::Line),
        _ => Err(Failure::Usage(format!(
            "--frame {name}: none, 4 or line is needed"
        ))),
    }
}

fn missing(what: &str) -> Failure {
    Failure::Usage(format!("{what} is missing"))
}

fn positive(option: &str, value: OsString) -> Result<Duration, Failure> {
    match duration(option, value)? {
        Duration::ZERO => Err(Failure::Usage(format!(
            "{option} 0: a duration longer than nothing is needed"
        ))),
        duration => Ok(duration),
    }
}

#[path = "options_chat.rs"]
mod chat;

#[cfg(test)]
#[path = "options_tests.rs"]
mod tests;
