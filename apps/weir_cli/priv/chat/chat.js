// The page of `weir demo chat`. It talks to the server by the push protocol only, with weir-push.js.
import { connect } from '/weir-push.js';

const ROOMS = ['lobby', 'kitchen', 'garden', 'library', 'rooftop'];
const KEPT = 200; // messages of a room, as the server keeps them
const SECONDS = 120; // of the chart

const $ = (id) => document.getElementById(id);
const element = (name, properties = {}, ...children) => {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
};
const pick = (list) => list[Math.floor(Math.random() * list.length)];
const own = crypto.getRandomValues(new Uint32Array(2)).join('-');

// Each window is a person, so that two windows of one browser can talk to each other.
const stored = sessionStorage.getItem('name');
const manners = ['Swift', 'Calm', 'Bright', 'Quiet', 'Merry', 'Bold', 'Gentle', 'Keen'];
const animals = ['otter', 'heron', 'salmon', 'beaver', 'kingfisher', 'trout', 'dipper', 'newt'];
$('name').value = stored ?? `${pick(manners)} ${pick(animals)}`;
sessionStorage.setItem('name', $('name').value);
const name = () => $('name').value.trim() || 'Nobody';

const colour = (text) => {
  let hash = 7;
  for (const character of text) hash = (hash * 31 + character.codePointAt(0)) >>> 0;
  return `hsl(${hash % 360} 55% 42%)`;
};
const milliseconds = (value) => (value < 10 ? value.toFixed(value < 1 ? 2 : 1) : Math.round(value)) + ' ms';
const numberOf = (id) => Number(id?.split(':')[1] ?? 0);

// While the page is cut off it has no socket and opens none.
let isCut = false;
const sockets = new Set();
class Socket extends WebSocket {
  constructor(url) {
    if (isCut) throw new Error('cut off');
    super(url);
    sockets.add(this);
    this.addEventListener('close', () => sockets.delete(this));
  }
}

const rooms = new Map(ROOMS.map((room) => [room, { room, entries: [], unread: 0, last: null, button: null }]));
let current = rooms.get(ROOMS.includes(location.hash.slice(1)) ? location.hash.slice(1) : ROOMS[0]);
const sent = new Map(); // messages that this window has sent and not yet received, by their mark

const push = connect(location.href, {
  transports: ['websocket'],
  WebSocket: Socket,
  minDelay: 200,
  maxDelay: 2000,
  state: (state, transport) => {
    $('state').className = state;
    const told = state === 'open' ? transport : state === 'waiting' ? 'coming back' : state;
    $('state').lastElementChild.textContent = isCut ? 'cut off: the others talk on' : told;
    if (state === 'open') queueMicrotask(back);
  },
});

for (const state of rooms.values()) {
  push.subscribe(`chat/${state.room}`, {
    message: ({ data, id }) => {
      state.last = id;
      let said;
      try { said = JSON.parse(data); } catch { return; }
      const at = sent.get(said.mark);
      if (at !== undefined) {
        sent.delete(said.mark);
        $('own').textContent = milliseconds(performance.now() - at);
      }
      add(state, { ...said, mine: said.by === own });
    },
    gap: ({ missed, id }) => {
      state.last = id;
      const note = missed === null
        ? 'The server was restarted'
        : `${missed.toLocaleString('en')} messages are gone: a room keeps ${KEPT}`;
      add(state, { gap: true, note });
    },
  }, { from: 50, info: { name: name(), by: own } });
}

// After a break: how many messages were missed.
let before = null;
const leave = () => { before ??= new Map([...rooms.values()].map(({ room, last }) => [room, last])); };
async function back() {
  presence();
  if (!before) return;
  const left = before;
  before = null;
  for (const state of rooms.values()) {
    const from = left.get(state.room);
    try {
      const { last_id: last } = await push.history(`chat/${state.room}`, { from: 'new', limit: 1 });
      const missed = from && last.split(':')[0] === from.split(':')[0] ? numberOf(last) - numberOf(from) : 0;
      const messages = `${missed.toLocaleString('en')} ${missed === 1 ? 'message' : 'messages'}`;
      add(state, { note: missed === 0 ? 'Back: no messages missed' : `Back: caught up on ${messages}` });
    } catch (failure) {
      if (failure.code !== 'no_channel') return;
    }
  }
}

// Messages are drawn at most once a frame.
let isStale = true;
function add(state, entry) {
  if (entry.from !== undefined && (typeof entry.from !== 'string' || typeof entry.text !== 'string')) return;
  state.entries.push({ ...entry, time: new Date() });
  if (state.entries.length > KEPT) state.entries.splice(0, state.entries.length - KEPT);
  if (state !== current && entry.from !== undefined) state.unread = Math.min(999, state.unread + 1);
  if (state === current) fresh.push(state.entries.at(-1));
  isStale = true;
}

let fresh = [];
let follows = true;
function item(entry) {
  if (entry.note !== undefined) {
    return element('li', { className: entry.gap ? 'note gap' : 'note', textContent: entry.note });
  }
  const time = entry.time.toLocaleTimeString('en-GB', { hour: '2-digit', minute: '2-digit' });
  const initial = entry.robot ? '' : (entry.from.trim()[0] ?? '?').toUpperCase();
  const face = element('span', { className: 'face', textContent: initial });
  if (!entry.robot) face.style.background = colour(entry.from);
  return element(
    'li', { className: entry.mine ? 'mine' : entry.robot ? 'robot' : '' }, face,
    element('span', { className: 'from', textContent: entry.mine ? time : `${entry.from} · ${time}` }),
    element('span', { className: 'text', textContent: entry.text }),
  );
}

function draw() {
  requestAnimationFrame(draw);
  if (!isStale) return;
  isStale = false;
  const list = $('messages');
  if (fresh === null) list.replaceChildren(...current.entries.map(item));
  else {
    if (fresh.length > 0) list.querySelector('.empty')?.remove();
    list.append(...fresh.slice(-KEPT).map(item));
  }
  fresh = [];
  while (list.childElementCount > KEPT) list.firstElementChild.remove();
  if (list.childElementCount === 0) {
    const textContent = 'Nobody has said anything yet. Open this page in a second window.';
    list.append(element('li', { className: 'empty', textContent }));
  }
  if (follows) list.scrollTop = list.scrollHeight;
  $('latest').hidden = follows;
  for (const { button, unread } of rooms.values()) button.lastElementChild.textContent = unread || '';
}

$('messages').addEventListener('scroll', () => {
  const { scrollTop, scrollHeight, clientHeight } = $('messages');
  const now = scrollHeight - scrollTop - clientHeight < 80;
  if (now !== follows) isStale = true;
  follows = now;
});
$('latest').addEventListener('click', () => { follows = isStale = true; });

function enter(state) {
  current = state;
  state.unread = 0;
  for (const { room, button } of rooms.values()) button.toggleAttribute('aria-current', room === state.room);
  history.replaceState(null, '', `#${state.room}`);
  fresh = null;
  follows = isStale = true;
  presence();
}

for (const state of rooms.values()) {
  const name = element('span', { textContent: `# ${state.room}` });
  state.button = element('button', { type: 'button' }, name, element('b'));
  state.button.addEventListener('click', () => enter(state));
  $('rooms').append(state.button);
}

$('form').addEventListener('submit', async (event) => {
  event.preventDefault();
  const text = $('text').value.trim();
  if (!text) return;
  const mark = `${own}-${Math.random()}`;
  sent.set(mark, performance.now());
  try {
    follows = true;
    await push.publish(`chat/${current.room}`, JSON.stringify({ from: name(), by: own, mark, text }));
    $('text').value = '';
  } catch (failure) {
    sent.delete(mark);
    add(current, { gap: true, note: `Not sent: ${failure.message}` });
  }
});
$('name').addEventListener('change', () => sessionStorage.setItem('name', name()));

$('cut').addEventListener('click', () => {
  isCut = !isCut;
  $('cut').setAttribute('aria-pressed', isCut);
  $('cut').textContent = isCut ? 'Connect me' : 'Cut me off';
  if (!isCut) return;
  leave();
  for (const socket of sockets) socket.close();
});

// Who is here ---------------------------------------------------------------------------

async function presence() {
  let present;
  try { present = await push.presence(`chat/${current.room}`); } catch { return; }
  const people = present.map(({ info }) => info).filter((info) => typeof info?.name === 'string');
  const robots = people.filter(({ robot }) => robot).length;
  const others = people.filter(({ robot }) => !robot);
  $('count').textContent = people.length.toLocaleString('en');
  $('people').replaceChildren(
    ...others.slice(0, 50).map((info) => {
      const dot = element('i');
      dot.style.background = colour(info.by === own ? name() : info.name);
      return element('li', {}, dot, info.by === own ? `${name()} (you)` : info.name);
    }),
    ...(robots > 0
      ? [element('li', { className: 'more', textContent: `and ${robots.toLocaleString('en')} robots` })]
      : []),
  );
}
setInterval(() => document.hidden || presence(), 2000);

// Robots, and the delay of messages to them ------------------------------------------------

push.subscribe('demo/dial', {
  message: ({ data }) => { $('dial').value = data; $('dialled').textContent = data; },
}, { from: 1 });
$('dial').addEventListener('input', () => { $('dialled').textContent = $('dial').value; });
$('dial').addEventListener('change', () => push.publish('demo/dial', $('dial').value).catch(() => {}));

const seconds = [];
push.subscribe('demo/delay', {
  message: ({ data }) => {
    const second = JSON.parse(data);
    seconds.push(second);
    if (seconds.length > SECONDS) seconds.shift();
    $('p50').textContent = second.count ? milliseconds(second.p50) : '–';
    $('p99').textContent = second.count ? milliseconds(second.p99) : '–';
    $('rate').textContent = second.count.toLocaleString('en');
    chart();
  },
}, { from: SECONDS });

// 0.01 ms to 1 s: powers of ten have the same height.
function chart() {
  const canvas = $('chart');
  const { clientWidth: width, clientHeight: height } = canvas;
  const scale = devicePixelRatio || 1;
  canvas.width = width * scale;
  canvas.height = height * scale;
  const context = canvas.getContext('2d');
  context.scale(scale, scale);
  const style = getComputedStyle(document.documentElement);
  const left = 44;
  const y = (value) => height - 5 - ((Math.log10(Math.min(1000, Math.max(0.01, value))) + 2) / 5) * (height - 12);
  context.font = '11px system-ui, sans-serif';
  context.textBaseline = 'middle';
  context.textAlign = 'right';
  const decades = [[0.01, '10 µs'], [0.1, '0.1 ms'], [1, '1 ms'], [10, '10 ms'], [100, '0.1 s'], [1000, '1 s']];
  const few = [[0.01, '10 µs'], [1, '1 ms'], [1000, '1 s']];
  for (const [value, label] of height < 80 ? few : decades) {
    context.fillStyle = style.getPropertyValue('--soft');
    context.fillText(label, left - 6, y(value));
    context.fillStyle = style.getPropertyValue('--line');
    context.fillRect(left, Math.round(y(value)), width - left, 1);
  }
  const step = (width - left) / (SECONDS - 1);
  for (const name of ['p99', 'p50']) {
    context.strokeStyle = style.getPropertyValue(`--${name}`);
    context.lineWidth = 2;
    context.lineJoin = 'round';
    context.beginPath();
    let isDown = false;
    seconds.forEach((second, index) => {
      const x = width - (seconds.length - 1 - index) * step;
      if (second.count === 0) isDown = false;
      else {
        if (isDown) context.lineTo(x, y(second[name]));
        else context.moveTo(x, y(second[name]));
        isDown = true;
      }
    });
    context.stroke();
  }
}
new ResizeObserver(chart).observe($('chart'));
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', chart);

enter(current);
draw();
