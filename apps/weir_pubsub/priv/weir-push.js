// A client of a Weir push server, for browsers and Node: over a WebSocket; if that does not get through, over an
// event stream for each channel; then by long polls. After a break it continues after the last message. No
// dependencies. Types: weir-push.d.ts.
// It is one file on purpose: pages load it from one URL or keep a copy of it, and nothing has to be built.
//
//     import { connect } from '/weir-push.js';
//     const push = connect();
//     push.subscribe('news', {
//       message: ({ data, id }) => console.log(id, data),
//       gap: ({ missed }) => console.log(missed),
//     });
//     await push.publish('news', 'Hello');

const DEFAULTS = {
  token: undefined,
  transports: ['websocket', 'stream', 'poll'],
  openTimeout: 5000, // ms for a transport to show that it works
  pingInterval: 25000,
  pingTimeout: 10000,
  minDelay: 500, // ms: the delay before reconnecting is random, below a bound that begins here and doubles
  maxDelay: 30000,
  restartDelay: 5000, // ms over which clients spread their reconnects when the server says that it restarts
  fetch: globalThis.fetch?.bind(globalThis),
  WebSocket: globalThis.WebSocket,
  state: () => {},
};

export class PushError extends Error {
  constructor(code, text) {
    super(text || code);
    this.name = 'PushError';
    this.code = code;
  }
}

export function connect(url = globalThis.location?.href, options = {}) {
  return new Push(new URL('/', url), { ...DEFAULTS, ...options });
}

class Push {
  #url;
  #options;
  #subscriptions = new Map();
  #line = null; // the transport that is open
  #opening = null;
  #failures = 0;
  #timer = null;
  #closed = false;

  constructor(url, options) {
    this.#url = url;
    this.#options = options;
    this.#open();
  }

  // The name of the transport that is open, or null.
  get transport() {
    return this.#line?.name ?? null;
  }

  subscribe(channel, handlers, { from = 'new', info = null } = {}) {
    if (this.#subscriptions.has(channel)) throw new PushError('subscribed', `subscribes to ${channel} already`);
    const subscription = {
      channel,
      handlers,
      from,
      info,
      last: null,
      unsubscribe: () => {
        if (this.#subscriptions.get(channel) !== subscription) return;
        this.#subscriptions.delete(channel);
        this.#line?.remove(subscription);
      },
    };
    this.#subscriptions.set(channel, subscription);
    this.#line?.add(subscription);
    return { channel, unsubscribe: subscription.unsubscribe };
  }

  publish(channel, data, { event, contentType } = {}) {
    return this.#ask((line) => line.publish(channel, data, event, contentType));
  }

  history(channel, { from = 'oldest', limit = 100 } = {}) {
    return this.#ask((line) => line.request({ type: 'history', channel, from, limit }));
  }

  presence(channel) {
    return this.#ask((line) => line.request({ type: 'presence', channel }).then(({ present }) => present));
  }

  close() {
    this.#closed = true;
    clearTimeout(this.#timer);
    this.#opening?.close();
    this.#line?.close();
    this.#line = null;
    this.#options.state('closed', null);
  }

  async #ask(question) {
    if (!this.#line) throw new PushError('offline', 'not connected');
    return question(this.#line);
  }

  // Tries the transports in their order. The first that works is kept until it breaks.
  async #open() {
    // Subscriptions that are made in the same tick are there when a transport is tried.
    await null;
    if (this.#closed) return;
    this.#options.state('connecting', null);
    for (const name of this.#options.transports) {
      if (name === 'websocket' && !this.#options.WebSocket) continue;
      const line = new LINES[name](this.#url, this.#options, this);
      this.#opening = line;
      try {
        await line.open([...this.#subscriptions.values()]);
      } catch {
        line.close();
        if (this.#closed) return;
        continue;
      }
      this.#opening = null;
      if (this.#closed) return line.close();
      this.#line = line;
      line.begin([...this.#subscriptions.values()], (delay) => this.#broken(line, delay));
      this.#options.state('open', name);
      return;
    }
    this.#opening = null;
    if (!this.#closed) this.#later();
  }

  #broken(line, delay) {
    line.close();
    if (this.#line !== line) return;
    this.#line = null;
    this.#later(delay);
  }

  // A random delay, so that clients that lost their connections together do not reconnect together.
  #later(spread) {
    const { minDelay, maxDelay } = this.#options;
    const bound = spread ?? Math.min(maxDelay, minDelay * 2 ** this.#failures);
    this.#failures = Math.min(this.#failures + 1, 20);
    const delay = Math.random() * bound;
    this.#options.state('waiting', null);
    this.#timer = setTimeout(() => this.#open(), delay);
  }

  // A server has answered as it should: the delay begins with minDelay again.
  works() {
    this.#failures = 0;
  }

  // Transports pass on what they receive.
  heard(subscription, message) {
    if (this.#subscriptions.get(subscription.channel) !== subscription) return;
    subscription.last = message.id;
    subscription.handlers.message?.(message);
  }

  gap(subscription, missed, id) {
    if (this.#subscriptions.get(subscription.channel) !== subscription) return;
    subscription.last = id;
    subscription.handlers.gap?.({ channel: subscription.channel, missed, id });
  }

  ended(subscription, code, text) {
    if (this.#subscriptions.get(subscription.channel) !== subscription) return;
    this.#subscriptions.delete(subscription.channel);
    if (code === 'deleted') subscription.handlers.closed?.({ channel: subscription.channel, reason: code });
    else subscription.handlers.error?.(new PushError(code, text));
  }

  of(channel) {
    return this.#subscriptions.get(channel);
  }
}

const begin = ({ last, from }) => last ?? from;

const within = (promise, milliseconds) => {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new PushError('timeout')), milliseconds);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
};

const bytesOf = (base64) => Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));

const base64Of = (bytes) => btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(''));

const contentOf = ({ data, base64 }) => (base64 === undefined ? data : bytesOf(base64));

class WebSocketLine {
  name = 'websocket';
  #url;
  #options;
  #push;
  #socket;
  #asked = new Map();
  #next = 1;
  #ping;
  #broken = () => {};

  constructor(url, options, push) {
    this.#url = new URL('/ws', url);
    this.#url.protocol = url.protocol === 'https:' ? 'wss:' : 'ws:';
    if (options.token) this.#url.searchParams.set('access_token', options.token);
    this.#options = options;
    this.#push = push;
  }

  // The transport works when the server has sent welcome.
  async open() {
    const socket = new this.#options.WebSocket(this.#url.href);
    this.#socket = socket;
    const welcome = new Promise((resolve, reject) => {
      socket.onmessage = ({ data }) => {
        if (JSON.parse(data).type === 'welcome') resolve();
        else this.#message(JSON.parse(data));
      };
      socket.onerror = socket.onclose = ({ code }) => reject(new PushError('closed', String(code)));
    });
    await within(welcome, this.#options.openTimeout);
    this.#push.works();
  }

  begin(subscriptions, broken) {
    this.#broken = broken;
    const lost = ({ code }) => broken(code === 1012 || code === 1013 ? this.#options.restartDelay : undefined);
    if (this.#socket.readyState !== 1) return queueMicrotask(() => lost({}));
    this.#socket.onclose = lost;
    this.#socket.onerror = () => {};
    for (const subscription of subscriptions) this.add(subscription);
    this.#ping = setTimeout(() => this.#alive(), this.#options.pingInterval);
  }

  // A connection may be dead without an error.
  async #alive() {
    try {
      await within(this.request({ type: 'ping' }), this.#options.pingTimeout);
      this.#ping = setTimeout(() => this.#alive(), this.#options.pingInterval);
    } catch {
      this.#broken();
    }
  }

  close() {
    clearTimeout(this.#ping);
    for (const { reject } of this.#asked.values()) reject(new PushError('offline', 'the connection has ended'));
    this.#asked.clear();
    if (this.#socket) {
      this.#socket.onclose = this.#socket.onerror = this.#socket.onmessage = () => {};
      this.#socket.close();
    }
  }

  request(frame) {
    return new Promise((resolve, reject) => {
      const ref = this.#next++;
      this.#asked.set(ref, { resolve, reject });
      this.#socket.send(JSON.stringify({ ...frame, ref }));
    });
  }

  publish(channel, data, event, contentType) {
    const content = typeof data === 'string' ? { data } : { base64: base64Of(data) };
    return this.request({ type: 'publish', channel, ...content, event, content_type: contentType });
  }

  add(subscription) {
    const { channel, info } = subscription;
    this.request({ type: 'subscribe', channel, from: begin(subscription), info }).catch(({ code, message }) => {
      if (code === 'unavailable') this.#broken();
      else if (code !== 'offline') this.#push.ended(subscription, code, message);
    });
  }

  remove({ channel }) {
    this.request({ type: 'unsubscribe', channel }).catch(() => {});
  }

  #message(frame) {
    const subscription = this.#push.of(frame.channel);
    const asked = this.#asked.get(frame.ref);
    switch (frame.type) {
      case 'message':
        if (subscription) this.#push.heard(subscription, heardOf(frame));
        break;
      case 'gap':
        if (subscription) this.#push.gap(subscription, frame.missed, frame.id);
        break;
      case 'position':
        // It may come after messages.
        if (subscription) subscription.last ??= frame.id;
        break;
      case 'closed':
        if (frame.reason === 'unavailable') this.#broken();
        else if (subscription) this.#push.ended(subscription, frame.reason);
        break;
      default:
        this.#asked.delete(frame.ref);
        if (frame.type === 'error') asked?.reject(new PushError(frame.code, frame.text));
        else asked?.resolve(frame.type === 'history' ? { ...frame, messages: frame.messages.map(heardOf) } : frame);
    }
  }
}

const heardOf = (frame) => ({
  channel: frame.channel,
  id: frame.id,
  data: contentOf(frame),
  event: frame.event,
  contentType: frame.content_type,
});

// What event streams and long polls have in common: a request for each channel, and others to publish.
class HttpLine {
  #url;
  options;
  push;
  #running = new Map();
  broken = () => {};

  constructor(url, options, push) {
    this.#url = url;
    this.options = options;
    this.push = push;
  }

  // Long polls are not tried first: they are assumed to work.
  async open() {}

  begin(subscriptions, broken) {
    this.broken = broken;
    for (const subscription of subscriptions) this.add(subscription);
  }

  close() {
    for (const abort of this.#running.values()) abort.abort();
    this.#running.clear();
  }

  add(subscription) {
    const abort = new AbortController();
    this.#running.set(subscription, abort);
    this.follow(subscription, abort.signal).catch(() => {
      if (!abort.signal.aborted) this.broken(this.restart);
    });
  }

  remove(subscription) {
    this.#running.get(subscription)?.abort();
    this.#running.delete(subscription);
  }

  // The position is in the query: a header field for it would make browsers send a preflight request.
  async get(subscription, headers, signal, query = {}) {
    const url = this.#at('/sub/', subscription.channel);
    const from = begin(subscription);
    for (const [name, value] of Object.entries(query)) url.searchParams.set(name, value);
    url.searchParams.set(String(from).includes(':') ? 'last_event_id' : 'from', from);
    const response = await this.options.fetch(url, { headers, signal, cache: 'no-store' });
    if (response.status === 410) this.push.ended(subscription, 'deleted');
    else if (response.status === 403) this.refused(subscription);
    else return response;
    return null;
  }

  refused(subscription) {
    this.push.ended(subscription, 'forbidden', 'not allowed in this channel');
  }

  #at(path, channel) {
    const url = new URL(path + encodeURIComponent(channel), this.#url);
    if (this.options.token) url.searchParams.set('access_token', this.options.token);
    return url;
  }

  async publish(channel, data, event, contentType) {
    const headers = { accept: 'application/json', 'content-type': contentType ?? 'text/plain' };
    if (event) headers['x-eventsource-event'] = event;
    const response = await this.options.fetch(this.#at('/pub/', channel), { method: 'POST', body: data, headers });
    if (!response.ok) throw new PushError({ 403: 'forbidden', 413: 'too_large' }[response.status] ?? 'unavailable');
    const { last_message_id, subscribers } = await response.json();
    return { channel, id: last_message_id, subscribers };
  }

  async request() {
    throw new PushError('unsupported', 'this takes a WebSocket');
  }
}

class StreamLine extends HttpLine {
  name = 'stream';
  #first = null;
  #trying = false;

  // Waits for the first bytes: a proxy that buffers streams would deliver none.
  async open([subscription]) {
    if (!subscription) return;
    const abort = new AbortController();
    this.#trying = true;
    try {
      this.#first = await within(this.#started(subscription, abort.signal), this.options.openTimeout);
    } catch (error) {
      abort.abort();
      throw error;
    } finally {
      this.#trying = false;
    }
    this.#first = { subscription, abort, ...this.#first };
  }

  // A server may have event streams switched off.
  refused(subscription) {
    if (this.#trying) throw new PushError('no_stream');
    super.refused(subscription);
  }

  async #started(subscription, signal) {
    const response = await this.get(subscription, { accept: 'text/event-stream' }, signal);
    if (!response) return { reader: null };
    if (!response.headers.get('content-type')?.startsWith('text/event-stream')) throw new PushError('no_stream');
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    const { value, done } = await reader.read();
    if (done) throw new PushError('no_stream');
    this.push.works();
    return { reader, text: value };
  }

  close() {
    this.#first?.abort.abort();
    super.close();
  }

  async follow(subscription, signal) {
    let started;
    if (this.#first?.subscription === subscription) {
      started = this.#first;
      signal.addEventListener('abort', () => started.abort.abort());
    } else {
      started = await this.#started(subscription, signal);
    }
    const { reader, text } = started;
    if (!reader) return;
    const parser = new EventParser((event) => this.#event(subscription, event));
    parser.take(text);
    for (;;) {
      const { value, done } = await reader.read();
      if (done || signal.aborted) break;
      parser.take(value);
    }
    this.restart = parser.retry;
    throw new PushError('closed');
  }

  #event(subscription, { id, event, data, comment }) {
    if (comment?.startsWith('410')) this.push.ended(subscription, 'deleted');
    else if (comment?.startsWith('403')) this.push.ended(subscription, 'forbidden', 'not allowed in this channel');
    else if (comment !== undefined) return;
    else if (event === 'gap') this.push.gap(subscription, data === 'unknown' ? null : Number(data), id);
    else this.push.heard(subscription, { channel: subscription.channel, id, data, event, contentType: undefined });
  }
}

// The event stream format of the HTML standard. Comments are events, too: in them the server says why it ends the
// stream.
class EventParser {
  #rest = '';
  #event = {};
  #tell;
  retry;

  constructor(tell) {
    this.#tell = tell;
  }

  take(text) {
    const lines = (this.#rest + text).split(/\r\n|\n|\r(?!$)/);
    this.#rest = lines.pop();
    for (const line of lines) this.#line(line);
  }

  #line(line) {
    if (line === '') {
      if (this.#event.data !== undefined) this.#tell(this.#event);
      this.#event = { id: this.#event.id };
      return;
    }
    const colon = line.indexOf(':');
    const name = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? '' : line.slice(colon + 1).replace(/^ /, '');
    const { data } = this.#event;
    if (name === '') this.#tell({ comment: value });
    else if (name === 'data') this.#event.data = data === undefined ? value : `${data}\n${value}`;
    else if (name === 'retry') this.retry = Number(value) || undefined;
    else this.#event[name] = value;
  }
}

class PollLine extends HttpLine {
  name = 'poll';

  async follow(subscription, signal) {
    while (!signal.aborted) {
      const response = await this.get(subscription, {}, signal, { poll_answer: 'multipart' });
      if (!response) return;
      if (response.status !== 200 && response.status !== 408) throw new PushError('unavailable');
      const epoch = Date.parse(response.headers.get('last-modified')) / 1000;
      const last = Number(response.headers.get('etag') || NaN);
      // A page of some other server has no position, and would be requested again and again.
      if (response.status === 200 && !Number.isInteger(epoch + last)) throw new PushError('unavailable');
      this.push.works();
      if (response.status === 408) continue;
      const contentType = response.headers.get('content-type') ?? undefined;
      const messages = messagesOf(new Uint8Array(await response.arrayBuffer()), contentType);
      // The messages are consecutive, and the response has the id of the last.
      const ids = messages.map((_, index) => `${epoch}:${last - messages.length + 1 + index}`);
      const missed = response.headers.get('weir-missed');
      if (missed) this.push.gap(subscription, missed === 'unknown' ? null : Number(missed), ids[0]);
      messages.forEach(({ bytes, contentType }, index) => {
        const { channel } = subscription;
        this.push.heard(subscription, {
          channel, id: ids[index], data: textOr(bytes), event: undefined, contentType,
        });
      });
    }
  }
}

// The messages of an answer: one, or one in each part.
const messagesOf = (bytes, contentType) => {
  const boundary = contentType?.match(/^multipart\/mixed; boundary=(.+)$/)?.[1];
  if (!boundary) return [{ bytes, contentType }];
  const messages = [];
  const delimiter = new TextEncoder().encode(`\r\n--${boundary}`);
  let at = delimiter.length - 2;
  while (bytes[at] !== 0x2d) {
    const data = indexOf(bytes, END_OF_HEAD, at) + END_OF_HEAD.length;
    const end = indexOf(bytes, delimiter, data);
    const head = new TextDecoder().decode(bytes.subarray(at, data));
    messages.push({ bytes: bytes.slice(data, end), contentType: head.match(/^content-type: (.*?)\r$/im)?.[1] });
    at = end + delimiter.length;
  }
  return messages;
};

const END_OF_HEAD = new TextEncoder().encode('\r\n\r\n');

const indexOf = (bytes, part, from) => {
  for (let at = bytes.indexOf(part[0], from); at >= 0; at = bytes.indexOf(part[0], at + 1)) {
    if (part.every((byte, index) => byte === bytes[at + index])) return at;
  }
  throw new PushError('bad_request', 'a part has no end');
};

const textOr = (bytes) => {
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes);
  } catch {
    return bytes;
  }
};

const LINES = { websocket: WebSocketLine, stream: StreamLine, poll: PollLine };
