// Unchanged npm clients. Prints `LINE MESSAGE` for each message. Usage: clients.cjs PACKAGES CLIENT TRANSPORT URL
const path = require('path');
const [packages, client, transport, url] = process.argv.slice(2);
const need = (name) => require(require.resolve(name, { paths: [packages] }));
const say = (message) => console.log(`LINE ${message}`);

// Browser objects that Node lacks.
const browser = () => {
  globalThis.window = globalThis;
  globalThis.window.addEventListener ??= () => {};
  globalThis.window.removeEventListener ??= () => {};
  globalThis.document = { hidden: false, addEventListener() {}, removeEventListener() {} };
  globalThis.location = { protocol: 'http:', host: new URL(url).host, pathname: '/' };
  const { WebSocket } = need('ws');
  globalThis.WebSocket = WebSocket;
  globalThis.EventSource = need('eventsource');
  globalThis.XMLHttpRequest = Request;
};

// The part of XMLHttpRequest that Nchan's client uses.
class Request {
  headers = {};
  aborted = new AbortController();
  open(method, address) { this.address = address; }
  setRequestHeader(name, value) { this.headers[name] = value; }
  getResponseHeader(name) { return this.answer ? this.answer.headers.get(name) : null; }
  abort() { this.aborted.abort(); }
  async send() {
    try {
      this.answer = await fetch(this.address, { headers: this.headers, signal: this.aborted.signal });
      this.response = this.responseText = await this.answer.text();
      this.status = this.answer.status;
      this.readyState = 4;
      this.onload();
    } catch (error) {
      this.status = 0;
      this.readyState = 4;
      if (this.aborted.signal.aborted) this.onabort(); else this.onerror();
    }
  }
}

const clients = {
  nchan() {
    browser();
    const NchanSubscriber = need('nchan');
    const subscriber = new NchanSubscriber(url, { subscriber: transport, reconnectTimeout: 100 });
    subscriber.on('message', say);
    subscriber.start();
  },
  eventsource() {
    const EventSource = need('eventsource');
    const source = new EventSource(url);
    source.reconnectInterval = 100;
    source.onmessage = (event) => say(event.data);
  },
  'fetch-event-source'() {
    browser();
    const { fetchEventSource } = need('@microsoft/fetch-event-source');
    // The client also reports comments, with empty data.
    fetchEventSource(url, {
      onmessage: (event) => { if (event.data) say(event.data); },
      onclose: () => { throw new Error('closed'); },
      onerror: () => 100,
      openWhenHidden: true,
    });
  },
  // ws does not reconnect by itself, so this does what its user would.
  ws() {
    const { WebSocket } = need('ws');
    let last = '';
    const connect = () => {
      const query = `last_event_id=${encodeURIComponent(last)}`;
      const socket = new WebSocket(`${url.replace('http', 'ws')}?${query}`, ['ws+meta.nchan']);
      socket.on('message', (data) => {
        const [head, message] = data.toString().split('\n\n');
        last = head.match(/^id: (.*)/)[1];
        say(message);
      });
      socket.on('error', () => {});
      socket.on('close', () => setTimeout(connect, 100));
    };
    connect();
  },
};

clients[client]();
