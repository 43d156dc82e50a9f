// A client on the package `ws`: echoes of text and binary, a ping, then a close. Prints `ok`. Usage: ws_client.js PORT
const WebSocket = require('ws');
const assert = require('assert');

const socket = new WebSocket(`ws://127.0.0.1:${process.argv[2]}/websocket`);
const texts = ['Hello', 'κόσμε', 'x'.repeat(100000), ''];
const received = [];
socket.on('open', () => texts.forEach((text) => { socket.send(text); socket.send(Buffer.from(text)); }));
socket.on('message', (data, binary) => {
  received.push([data.toString(), binary]);
  if (received.length === 2 * texts.length) socket.ping('are you there?');
});
socket.on('pong', (data) => {
  assert.strictEqual(data.toString(), 'are you there?');
  assert.deepStrictEqual(received, texts.flatMap((text) => [[text, false], [text, true]]));
  assert.ok(socket.extensions.includes('permessage-deflate'));
  socket.close(4000, 'bye');
});
socket.on('close', (code) => { assert.strictEqual(code, 4000); console.log('ok'); });
