//! `weir-tokio echo|http|websocket --port PORT`: servers as the documentation of tokio, hyper and
//! tokio-tungstenite shows them, on one thread.
//!
//! Prints `ready PORT` when it listens on 127.0.0.1.

mod echo;
mod http;
mod websocket;

use std::error::Error;
use std::net::Ipv4Addr;

use lexopt::prelude::*;
use tokio::net::{TcpListener, TcpStream};

/// The same backlog as the other servers.
const BACKLOG: u32 = 1024;

fn main() -> Result<(), Box<dyn Error>> {
    let (command, port) = arguments()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()?;
    match command.as_str() {
        "echo" => runtime.block_on(serve(port, echo::serve)),
        "http" => runtime.block_on(serve(port, http::serve)),
        "websocket" => runtime.block_on(serve(port, websocket::serve)),
        _ => Err("echo, http or websocket is needed".into()),
    }
}

fn arguments() -> Result<(String, u16), lexopt::Error> {
    let mut arguments = lexopt::Parser::from_env();
    let mut port = None;
    let mut command = None;
    while let Some(argument) = arguments.next()? {
        match argument {
            Long("port") => port = Some(arguments.value()?.parse()?),
            Value(name) if command.is_none() => command = Some(name.string()?),
            other => return Err(other.unexpected()),
        }
    }
    match (command, port) {
        (Some(command), Some(port)) => Ok((command, port)),
        _ => Err("echo, http or websocket is needed, and --port PORT".into()),
    }
}

/// Accepts connections and runs a task for each.
async fn serve<F>(port: u16, connected: fn(TcpStream) -> F) -> Result<(), Box<dyn Error>>
where
    F: Future<Output = ()> + Send + 'static,
{
    let socket = tokio::net::TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind((Ipv4Addr::LOCALHOST, port).into())?;
    let listener: TcpListener = socket.listen(BACKLOG)?;
    println!("ready {}", listener.local_addr()?.port());
    loop {
        let (connection, _) = listener.accept().await?;
        connection.set_nodelay(true)?;
        tokio::spawn(connected(connection));
    }
}
