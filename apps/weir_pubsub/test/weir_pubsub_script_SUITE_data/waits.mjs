// Prints the maximum delay before each reconnect of the client: with a server that is away except for one response,
// or with one that answers everything with a page.
import { connect } from './weir-push.mjs';

const waits = [];
let asked = 0;
Math.random = () => 1;
globalThis.setTimeout = (callback, milliseconds) => {
  waits.push(milliseconds);
  if (waits.length < 8) queueMicrotask(callback);
  else console.log(JSON.stringify(waits));
};

const message = () => new Response('x', { headers: { 'last-modified': 'Fri, 28 Mar 1980 01:09:51 GMT', etag: '1' } });
const client = connect('http://localhost', {
  transports: ['poll'],
  maxDelay: 4000,
  fetch: async () => {
    asked += 1;
    const headers = { 'content-type': 'text/html', etag: '"a"' };
    if (process.argv[2] === 'page') return new Response('<p>', { headers });
    if (asked === 5) return message();
    throw new Error('away');
  },
});
client.subscribe('a', { message: () => {} });
