//! The driver: one thread that loads a server in a closed loop or at a rate, and measures it.

pub mod accept;
pub mod arrivals;
pub mod ask_message;
pub mod ask_request;
pub mod chat;
pub mod client_hello;
pub mod echo;
pub mod events;
pub mod fanout;
pub mod fleet;
pub mod game;
pub mod greeting;
mod help;
pub mod http;
pub mod idle;
pub mod keep_alive;
pub(crate) mod lane;
pub mod load;
pub mod measurement;
pub mod observer;
pub mod open_loop;
pub mod opener;
pub mod options;
pub mod pattern;
pub mod protocol;
pub mod readers;
mod report;
pub mod response;
pub mod session;
pub mod stream;
pub mod target;
pub mod tls;
pub mod transport;
pub mod websocket;

use std::ffi::OsString;
use std::net::Ipv4Addr;

use crate::command_line::{self, Failure};
use crate::listener::Listener;
use crate::reference;
use crate::reference::server::{Server, Service};
use crate::reference::stream::{Chargen, Discard};
use ask_message::AskMessage;
use ask_request::AskRequest;
use echo::Echo;
use events::Events;
use fanout::Fanout;
use idle::Idle;
use keep_alive::KeepAlive;
use lane::BACKEND;
use load::{Broadcast, Carrier, Command, Held, Run};
use open_loop::OpenLoop;
use opener::Opening;
use options::Invocation;
use report::Report;
use session::Session;
use tls::Tls;
use transport::Plain;
use websocket::WebSocket;

/// For commands that load a server directly.
const NO_BACKEND: Option<Server<reference::echo::Echo>> = None;

/// Runs `weir-drive` with the arguments that follow the program's name, and prints the report.
pub fn main(arguments: Vec<OsString>) -> Result<(), Failure> {
    let run = match options::parse(arguments)? {
        Invocation::Help(text) => return command_line::print(text),
        Invocation::Drive(run) => run,
    };
    let report = drive(&run)?;
    command_line::print(&report.to_json())?;
    if report.is_success() {
        Ok(())
    } else {
        Err(Failure::Runtime(format!(
            "not one request succeeded: {}",
            measurement::errors_in_words(report.errors())
        )))
    }
}

fn drive(run: &Run) -> Result<Report, Failure> {
    let load = &run.load;
    let session = Session::new(load)?;
    let opening = Opening::STEADY;
    match &run.command {
        &Command::Echo {
            message,
            depth,
            carrier,
        } => {
            let connections = load.connections;
            let outcome = match carrier {
                Carrier::Tls => {
                    let echo = Echo::new(Tls::new(), message, depth, connections);
                    fleet::run(echo, load, opening, session, NO_BACKEND)?
                }
                Carrier::WebSocket => {
                    let websocket = WebSocket::new(&load.target, "/", message.size);
                    let echo = Echo::new(websocket, message, depth, connections);
                    fleet::run(echo, load, opening, session, NO_BACKEND)?
                }
                Carrier::Plain => {
                    let echo = Echo::new(Plain, message, depth, connections);
                    fleet::run(echo, load, opening, session, NO_BACKEND)?
                }
            };
            Ok(Report::of_requests("echo", load, outcome).with_bytes_verified())
        }
        &Command::MessagesAtRate {
            message,
            rate,
            backend,
        } => {
            let (server, opening) = echoing(backend)?;
            let protocol = OpenLoop::new(AskMessage::new(message), rate);
            let outcome = fleet::run(protocol, load, opening, session, server)?;
            Ok(Report::of_requests("echo", load, outcome).with_bytes_verified())
        }
        &Command::RequestsAtRate { rate } => {
            let protocol = OpenLoop::new(AskRequest::new(&load.target), rate);
            let outcome = fleet::run(protocol, load, opening, session, NO_BACKEND)?;
            Ok(Report::of_requests("http", load, outcome))
        }
        &Command::Proxy {
            message,
            depth,
            backend,
        } => {
            let server = serve(reference::echo::Echo::new(), backend)?;
            let echo = Echo::new(Plain, message, depth, load.connections);
            let outcome = fleet::run(echo, load, Opening::PATIENT, session, Some(server))?;
            Ok(Report::of_requests("proxy", load, outcome).with_bytes_verified())
        }
        &Command::Http { depth } => {
            let http = http::Http::new(&load.target, depth);
            let outcome = fleet::run(http, load, opening, session, NO_BACKEND)?;
            Ok(Report::of_requests("http", load, outcome))
        }
        &Command::Accept { backend, hello } => {
            let (server, _) = echoing(backend)?;
            let outcome = accept::run(load, hello, session, server)?;
            Ok(Report::of_requests("accept", load, outcome))
        }
        &Command::Fanout {
            size,
            slow,
            broadcast,
        } => {
            let listeners = load.connections;
            let outcome = match broadcast {
                Broadcast::Bytes => {
                    let fanout = Fanout::new(Plain, size, listeners, slow);
                    fleet::run(fanout, load, opening, session, NO_BACKEND)?
                }
                Broadcast::WebSocket => {
                    let websocket = WebSocket::new(&load.target, "/", size);
                    let fanout = Fanout::new(websocket, size, listeners, slow);
                    fleet::run(fanout, load, opening, session, NO_BACKEND)?
                }
                Broadcast::Events => {
                    let events = Events::new(&load.target, "/");
                    let fanout = Fanout::new(events, size, listeners, slow);
                    fleet::run(fanout, load, opening, session, NO_BACKEND)?
                }
            };
            Ok(Report::of_requests("fanout", load, outcome))
        }
        &Command::Chat(rooms) => {
            let (outcome, measurement, course) = chat::run(load, rooms, session)?;
            Ok(Report::of_requests("chat", load, (outcome, measurement)).with_course(course))
        }
        &Command::Download { backend } => {
            let download = stream::Download::new();
            let outcome = match backend {
                None => fleet::run(download, load, opening, session, NO_BACKEND)?,
                Some(port) => {
                    let server = serve(Chargen::new(), port)?;
                    fleet::run(download, load, Opening::PATIENT, session, Some(server))?
                }
            };
            Ok(Report::of_bytes("download", load, outcome))
        }
        &Command::Upload { backend } => {
            let upload = stream::Upload::new();
            let outcome = match backend {
                None => fleet::run(upload, load, opening, session, NO_BACKEND)?,
                Some(port) => {
                    let server = serve(Discard::new(), port)?;
                    fleet::run(upload, load, Opening::PATIENT, session, Some(server))?
                }
            };
            Ok(Report::of_bytes("upload", load, outcome))
        }
        Command::Game => {
            let outcome = fleet::run(game::Game::new(), load, opening, session, NO_BACKEND)?;
            Ok(Report::of_ticks("game", load, outcome))
        }
        Command::Idle {
            held,
            path,
            backend,
        } => {
            let target = &load.target;
            let outcome = match held {
                Held::Open => {
                    let (server, opening) = echoing(*backend)?;
                    fleet::run(Idle::new(Plain), load, opening, session, server)?
                }
                Held::Http => {
                    let idle = Idle::new(KeepAlive::new(target, path));
                    fleet::run(idle, load, opening, session, NO_BACKEND)?
                }
                Held::WebSocket => {
                    let idle = Idle::new(WebSocket::new(target, path, 1));
                    fleet::run(idle, load, opening, session, NO_BACKEND)?
                }
                Held::Events => {
                    let idle = Idle::new(Events::new(target, path));
                    fleet::run(idle, load, opening, session, NO_BACKEND)?
                }
            };
            Ok(Report::of_idling("idle", load, outcome))
        }
    }
}

/// The echo server behind a proxy, if a proxy is tested, and how connections are then opened.
fn echoing(
    backend: Option<u16>,
) -> Result<(Option<Server<reference::echo::Echo>>, Opening), Failure> {
    match backend {
        None => Ok((NO_BACKEND, Opening::STEADY)),
        Some(port) => {
            let server = serve(reference::echo::Echo::new(), port)?;
            Ok((Some(server), Opening::PATIENT))
        }
    }
}

/// The backend of a proxy under test. The proxy is started after the backend listens.
fn serve<S: Service>(service: S, port: u16) -> Result<Server<S>, Failure> {
    // Several drivers of one proxy share a port: the kernel distributes its connections among
    // them.
    let listener = Listener::bind_shared(Ipv4Addr::LOCALHOST.into(), port).map_err(|error| {
        Failure::runtime(
            format!("cannot listen on 127.0.0.1:{port} for the backend"),
            error,
        )
    })?;
    eprintln!("backend ready {}", listener.port());
    Ok(Server::in_lane(service, listener, BACKEND))
}
