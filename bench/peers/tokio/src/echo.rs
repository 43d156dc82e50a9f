//! Echoes bytes.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Echoes until the client closes.
pub(crate) async fn serve(mut connection: TcpStream) {
    let mut buffer = vec![0; 4096];
    while let Ok(count @ 1..) = connection.read(&mut buffer).await {
        if connection.write_all(&buffer[..count]).await.is_err() {
            return;
        }
    }
}
