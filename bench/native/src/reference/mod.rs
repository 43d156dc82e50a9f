//! The reference servers: the limit of one core with no framework between the kernel and the job.

pub mod accept;
pub mod echo;
pub mod fanout;
pub mod file;
pub mod game;
pub mod http;
pub mod options;
pub mod relay;
pub mod server;
pub mod stream;

use std::ffi::OsString;

use crate::command_line::{self, Failure};
use crate::limits;
use crate::listener::Listener;
use crate::stop::StopSignal;
use options::{Command, Invocation, Options};
use server::{Server, Service};

/// Runs `weir-reference` with the arguments after the program's name, until SIGTERM or SIGINT.
pub fn main(arguments: Vec<OsString>) -> Result<(), Failure> {
    let options = match Options::parse(arguments)? {
        Invocation::Help(text) => return command_line::print(text),
        Invocation::Serve(options) => options,
    };
    limits::raise_descriptors();
    let stop = StopSignal::install()?;
    let listener = Listener::bind(options.ip, options.port).map_err(|error| {
        let address = std::net::SocketAddr::new(options.ip, options.port);
        Failure::runtime(format!("cannot listen on {address}"), error)
    })?;
    match options.command {
        Command::Echo => serve(echo::Echo::new(), listener, &stop).map(drop),
        Command::Relay { to } => serve(relay::Relay::new(to), listener, &stop).map(drop),
        Command::Accept => serve(accept::Accept::new(), listener, &stop).map(drop),
        Command::Http => serve(http::Http::new(), listener, &stop).map(drop),
        Command::Game => serve(game::Game::new(), listener, &stop).map(drop),
        Command::File { path } => {
            let service = file::FileServer::open(&path).map_err(|error| {
                Failure::runtime(format!("cannot open {}", path.display()), error)
            })?;
            serve(service, listener, &stop).map(drop)
        }
        Command::Discard => serve(stream::Discard::new(), listener, &stop).map(drop),
        Command::Chargen => serve(stream::Chargen::new(), listener, &stop).map(drop),
        Command::Fanout {
            size,
            per_second,
            send_buffer,
        } => {
            if let Some(bytes) = send_buffer {
                listener.limit_send_buffer(bytes)?;
            }
            let fanout = serve(fanout::Fanout::new(size, per_second), listener, &stop)?;
            command_line::print(&fanout.summary())
        }
    }
}

fn serve<S: Service>(service: S, listener: Listener, stop: &StopSignal) -> Result<S, Failure> {
    command_line::print(&format!("ready {}", listener.port()))?;
    server::run(Server::new(service, listener), stop)
        .map_err(|error| Failure::runtime("cannot continue to serve", error))
}
