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
use client_hello::Hello;
use echo::Echo;
use events::Events;
use fanout::Fanout;
use idle::Idle;
use keep_alive::KeepAlive;
use lane::BACKEND;
use load::{Broadcast, Carrier, Command, Held, Load, Run};
use measurement::Measurement;
use open_loop::OpenLoop;
use opener::Opening;
use options::Invocation;
use pattern::Message;
use protocol::Protocol;
use report::Report;
use session::{Outcome, Session};
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
    match &run.command {
        &Command::Echo {
            message,
            depth,
            carrier,
        } => drive_echo(load, session, message, depth, carrier),
        &Command::MessagesAtRate {
            message,
            rate,
            backend,
        } => drive_messages(load, session, message, rate, backend),
        &Command::RequestsAtRate { rate } => {
            let protocol = OpenLoop::new(AskRequest::new(&load.target), rate);
            Ok(Report::of_requests(
                "http",
                load,
                direct(protocol, load, session)?,
            ))
        }
        &Command::Proxy {
            message,
            depth,
            backend,
        } => drive_proxy(load, session, message, depth, backend),
        &Command::Http { depth } => {
            let http = http::Http::new(&load.target, depth);
            Ok(Report::of_requests(
                "http",
                load,
                direct(http, load, session)?,
            ))
        }
        &Command::Accept { backend, hello } => drive_accept(load, session, backend, hello),
        &Command::Fanout {
            size,
            slow,
            broadcast,
        } => drive_fanout(load, session, size, slow, broadcast),
        &Command::Chat(rooms) => {
            let (outcome, measurement, course) = chat::run(load, rooms, session)?;
            Ok(Report::of_requests("chat", load, (outcome, measurement)).with_course(course))
        }
        &Command::Download { backend } => drive_download(load, session, backend),
        &Command::Upload { backend } => drive_upload(load, session, backend),
        Command::Game => Ok(Report::of_ticks(
            "game",
            load,
            direct(game::Game::new(), load, session)?,
        )),
        Command::Idle {
            held,
            path,
            backend,
        } => drive_idle(load, session, *held, path, *backend),
    }
}

fn drive_echo(
    load: &Load,
    session: Session,
    message: Message,
    depth: usize,
    carrier: Carrier,
) -> Result<Report, Failure> {
    let connections = load.connections;
    let outcome = match carrier {
        Carrier::Tls => direct(
            Echo::new(Tls::new(), message, depth, connections),
            load,
            session,
        )?,
        Carrier::WebSocket => {
            let websocket = WebSocket::new(&load.target, "/", message.size);
            direct(
                Echo::new(websocket, message, depth, connections),
                load,
                session,
            )?
        }
        Carrier::Plain => direct(Echo::new(Plain, message, depth, connections), load, session)?,
    };
    Ok(Report::of_requests("echo", load, outcome).with_bytes_verified())
}

fn drive_messages(
    load: &Load,
    session: Session,
    message: Message,
    rate: u64,
    backend: Option<u16>,
) -> Result<Report, Failure> {
    let (server, opening) = echoing(backend)?;
    let protocol = OpenLoop::new(AskMessage::new(message), rate);
    let outcome = fleet::run(protocol, load, opening, session, server)?;
    Ok(Report::of_requests("echo", load, outcome).with_bytes_verified())
}

fn drive_proxy(
    load: &Load,
    session: Session,
    message: Message,
    depth: usize,
    backend: u16,
) -> Result<Report, Failure> {
    let server = serve(reference::echo::Echo::new(), backend)?;
    let echo = Echo::new(Plain, message, depth, load.connections);
    let outcome = fleet::run(echo, load, Opening::PATIENT, session, Some(server))?;
    Ok(Report::of_requests("proxy", load, outcome).with_bytes_verified())
}

fn drive_accept(
    load: &Load,
    session: Session,
    backend: Option<u16>,
    hello: Option<Hello>,
) -> Result<Report, Failure> {
    let (server, _) = echoing(backend)?;
    let outcome = accept::run(load, hello, session, server)?;
    Ok(Report::of_requests("accept", load, outcome))
}

fn drive_fanout(
    load: &Load,
    session: Session,
    size: usize,
    slow: u32,
    broadcast: Broadcast,
) -> Result<Report, Failure> {
    let listeners = load.connections;
    let outcome = match broadcast {
        Broadcast::Bytes => direct(Fanout::new(Plain, size, listeners, slow), load, session)?,
        Broadcast::WebSocket => {
            let websocket = WebSocket::new(&load.target, "/", size);
            direct(Fanout::new(websocket, size, listeners, slow), load, session)?
        }
        Broadcast::Events => {
            let events = Events::new(&load.target, "/");
            direct(Fanout::new(events, size, listeners, slow), load, session)?
        }
    };
    Ok(Report::of_requests("fanout", load, outcome))
}

fn drive_download(load: &Load, session: Session, backend: Option<u16>) -> Result<Report, Failure> {
    let download = stream::Download::new();
    let outcome = match backend {
        None => direct(download, load, session)?,
        Some(port) => {
            let server = serve(Chargen::new(), port)?;
            fleet::run(download, load, Opening::PATIENT, session, Some(server))?
        }
    };
    Ok(Report::of_bytes("download", load, outcome))
}

fn drive_upload(load: &Load, session: Session, backend: Option<u16>) -> Result<Report, Failure> {
    let upload = stream::Upload::new();
    let outcome = match backend {
        None => direct(upload, load, session)?,
        Some(port) => {
            let server = serve(Discard::new(), port)?;
            fleet::run(upload, load, Opening::PATIENT, session, Some(server))?
        }
    };
    Ok(Report::of_bytes("upload", load, outcome))
}

fn drive_idle(
    load: &Load,
    session: Session,
    held: Held,
    path: &str,
    backend: Option<u16>,
) -> Result<Report, Failure> {
    let target = &load.target;
    let outcome = match held {
        Held::Open => {
            let (server, opening) = echoing(backend)?;
            fleet::run(Idle::new(Plain), load, opening, session, server)?
        }
        Held::Http => direct(Idle::new(KeepAlive::new(target, path)), load, session)?,
        Held::WebSocket => direct(Idle::new(WebSocket::new(target, path, 1)), load, session)?,
        Held::Events => direct(Idle::new(Events::new(target, path)), load, session)?,
    };
    Ok(Report::of_idling("idle", load, outcome))
}

/// Loads a server without a proxy before it.
fn direct<P: Protocol>(
    protocol: P,
    load: &Load,
    session: Session,
) -> Result<(Outcome, Measurement), Failure> {
    fleet::run(protocol, load, Opening::STEADY, session, NO_BACKEND)
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
