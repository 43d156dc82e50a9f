// An echo server on the package `ws`, for weir_http_websocket_cases. Prints its port, and ends when its standard input
// is closed.
const { WebSocketServer } = require('ws');

const server = new WebSocketServer({
  host: '127.0.0.1', port: 0, maxPayload: 32 << 20, perMessageDeflate: { threshold: 0 },
}, () => console.log(server.address().port));
server.on('connection', (socket) => {
  socket.on('error', () => {});
  socket.on('message', (data, binary) => socket.send(data, { binary }));
});
process.stdin.on('end', () => process.exit(0)).resume();
