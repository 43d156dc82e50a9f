//! Sends back every message of a WebSocket, by tokio-tungstenite.

use futures_util::{SinkExt, StreamExt};
use tokio::net::TcpStream;
use tokio_tungstenite::accept_async_with_config;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;

/// Bytes that it reads at a time: as much as the other servers here. Its default of 128 KiB is cleared before each read.
const BUFFER: usize = 4096;

/// Serves a connection to its end.
pub(crate) async fn serve(connection: TcpStream) {
    let config = WebSocketConfig::default().read_buffer_size(BUFFER);
    let Ok(mut socket) = accept_async_with_config(connection, Some(config)).await else {
        return;
    };
    while let Some(Ok(message)) = socket.next().await {
        // It answers pings and closes by itself.
        if !message.is_text() && !message.is_binary() {
            continue;
        }
        if socket.send(message).await.is_err() {
            return;
        }
    }
}
