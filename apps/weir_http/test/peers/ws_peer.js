// Echoes WebSocket messages with the package `ws`: what the cases of weir_http_websocket_cases are also put before. Prints its
// port, and ends with its standard input.
const { WebSocketServer } = require('ws');

const server = new WebSocketServer({
  host: '127.0.0.1', port: 0, maxPayload: 32 << 20, perMessageDeflate: { threshold: 0 },
}, () => console.log(server.address().port));
server.on('connection', (socket) => {
  socket.on('error', () => {});
  socket.on('message', (data, binary) => socket.send(data, { binary }));
});
process.stdin.on('end', () => process.exit(0)).resume();
