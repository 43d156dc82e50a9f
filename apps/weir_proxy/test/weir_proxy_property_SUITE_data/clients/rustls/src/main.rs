//! A client of rustls: NAME PORT.

use std::net::TcpStream;
use std::sync::Arc;

use rustls::{ClientConfig, ClientConnection, RootCertStore};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let mut config = ClientConfig::builder()
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let mut client = ClientConnection::new(Arc::new(config), arguments[1].clone().try_into()?)?;
    let mut socket = TcpStream::connect(format!("127.0.0.1:{}", arguments[2]))?;
    while client.wants_write() {
        client.write_tls(&mut socket)?;
    }
    Ok(())
}
