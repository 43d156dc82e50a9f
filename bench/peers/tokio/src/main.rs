//! `weir-tokio echo --port PORT`: sends back what comes, as tokio's documentation does, on one thread.
//!
//! Prints `ready PORT` when it listens on 127.0.0.1.

use std::error::Error;
use std::net::Ipv4Addr;

use lexopt::prelude::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Connections that wait to be accepted: as many as the other servers let wait.
const BACKLOG: u32 = 1024;

fn main() -> Result<(), Box<dyn Error>> {
    let port = port()?;
    tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()?
        .block_on(serve(port))
}

fn port() -> Result<u16, lexopt::Error> {
    let mut arguments = lexopt::Parser::from_env();
    let mut port = None;
    let mut echo = false;
    while let Some(argument) = arguments.next()? {
        match argument {
            Long("port") => port = Some(arguments.value()?.parse()?),
            Value(command) if command == "echo" && !echo => echo = true,
            other => return Err(other.unexpected()),
        }
    }
    match port {
        Some(port) if echo => Ok(port),
        _ => Err("echo --port PORT is needed".into()),
    }
}

async fn serve(port: u16) -> Result<(), Box<dyn Error>> {
    let socket = tokio::net::TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind((Ipv4Addr::LOCALHOST, port).into())?;
    let listener: TcpListener = socket.listen(BACKLOG)?;
    println!("ready {}", listener.local_addr()?.port());
    loop {
        let (connection, _) = listener.accept().await?;
        connection.set_nodelay(true)?;
        tokio::spawn(echo(connection));
    }
}

/// Ends with the connection, however that ends.
async fn echo(mut connection: TcpStream) {
    let mut buffer = vec![0; 4096];
    while let Ok(count @ 1..) = connection.read(&mut buffer).await {
        if connection.write_all(&buffer[..count]).await.is_err() {
            return;
        }
    }
}
