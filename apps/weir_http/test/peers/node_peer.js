// A server on Node's http that answers each request with what it understood: `METHOD TARGET LENGTH`.
//
//     node node_peer.js SOCKET
//
// Listens on a unix socket until its standard input ends.
'use strict'
const http = require('http')

const server = http.createServer((request, response) => {
  const socket = request.socket
  let length = 0
  socket.unanswered += 1
  request.on('data', (piece) => { length += piece.length })
  request.on('end', () => {
    const body = Buffer.from(`${request.method} ${request.url} ${length}\n`, 'latin1')
    response.writeHead(200, { 'Content-Length': body.length })
    response.end(body)
  })
  response.on('finish', () => {
    socket.unanswered -= 1
    endWith(socket)
  })
})
// The tests shut down their direction after sending all bytes; Node would then wait for its own timeouts.
server.httpAllowHalfOpen = true
// No timeouts here: the tests have their own.
server.headersTimeout = 0
server.requestTimeout = 0
server.keepAliveTimeout = 0
server.on('connection', (socket) => {
  socket.unanswered = 0
  socket.on('end', () => setImmediate(() => endWith(socket)))
})
function endWith (socket) {
  if (socket.readableEnded && socket.unanswered === 0) socket.end()
}
server.on('clientError', (error, socket) => {
  // An incomplete request at the end of the input is not a refusal.
  if (error.code === 'HPE_INVALID_EOF_STATE' || !socket.writable) return socket.destroy()
  // Earlier requests in the same bytes are answered first.
  setImmediate(() => socket.end(`HTTP/1.1 400 ${error.code}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n`))
})
server.listen(process.argv[2])
process.stdin.on('end', () => process.exit(0)).resume()
