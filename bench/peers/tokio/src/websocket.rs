//! Echoes WebSocket messages, using tokio-tungstenite.

use futures_util::{SinkExt, StreamExt};
use tokio::net::TcpStream;
use tokio_tungstenite::accept_async_with_config;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;

/// Bytes of a read, as in the other servers here. The default of 128 KiB is zeroed before each
/// read.
const BUFFER: usize = 4096;

/// Serves a connection until it ends.
pub(crate) async fn serve(connection: TcpStream) {
    let config = WebSocketConfig::default().read_buffer_size(BUFFER);
    let Ok(mut socket) = accept_async_with_config(connection, Some(config)).await else {
        return;
    };
    while let Some(Ok(message)) = socket.next().await {
        // The library itself answers pings and close frames.
        if !message.is_text() && !message.is_binary() {
            continue;
        }
        if socket.send(message).await.is_err() {
            return;
        }
    }
}
