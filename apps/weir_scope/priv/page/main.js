// The page. Its address says what is shown; the data come from the server.
import { get, stream, keepToken, takeToken, Refused } from "./server.js";
import { Store } from "./store.js";
import { Charts } from "./charts.js";
import { Blocks } from "./blocks.js";
import { pauseOf, watchedIn } from "./tabs.js";

const grains = { second: ["10 minutes", 600], minute: ["1 day", 1440] };
const stores = Object.fromEntries(Object.entries(grains).map(([grain, [, most]]) => [grain, new Store(most)]));
const watched = new Store(600);
const at = (id) => document.getElementById(id);
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

const shown = { tab: "overview", grain: "second", from: null, to: null, sort: null, filter: "", paused: false };
let about = { node: "", tabs: [], recorded: false };
let looked = null;

const say = (text, bad = false) => {
  at("state").textContent = text;
  at("state").className = bad ? "bad" : "";
};

// The address ----------------------------------------------------------------------------

const read = () => {
  const given = new URLSearchParams(location.search);
  const number = (name) => (given.has(name) && Number.isFinite(+given.get(name)) ? +given.get(name) : null);
  shown.tab = given.get("tab") ?? "overview";
  shown.grain = given.get("grain") in grains ? given.get("grain") : "second";
  shown.sort = given.get("sort");
  [shown.from, shown.to] = [number("from"), number("to")];
};

const address = (change) => {
  const next = { tab: shown.tab, grain: shown.grain, from: shown.from, to: shown.to, sort: shown.sort, ...change };
  const isDefault = (name, value) => value === null || (name === "grain" && value === "second");
  const kept = Object.entries(next).filter(([name, value]) => !isDefault(name, value));
  return `/?${new URLSearchParams(kept)}`;
};

const go = (change, push = true) => {
  const before = shown.tab;
  history[push ? "pushState" : "replaceState"](null, "", address(change));
  read();
  if (shown.tab !== before) looked = null;
  draw();
  look();
};

// What is shown --------------------------------------------------------------------------

const charts = new Charts(at("charts"), (from, to) => go({ from, to }));
const blocks = new Blocks(at("blocks"), (sort) => go({ sort }, false));

const sorts = () => about.tabs.find(({ name }) => name === shown.tab)?.sorts ?? [];
const sortedBy = () => shown.sort ?? sorts()[0];

const draw = () => {
  const store = stores[shown.grain];
  document.title = `${about.node || "weir"}: ${shown.tab}`;
  at("node").textContent = about.node || "weir scope";
  at("tabs").replaceChildren(...about.tabs.map(({ name }) => {
    const link = document.createElement("a");
    link.href = address({ tab: name, sort: null });
    link.textContent = name;
    if (name === shown.tab) link.ariaCurrent = "page";
    return link;
  }));
  at("grains").replaceChildren(...Object.entries(grains).map(([grain, [label]]) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = label;
    button.ariaPressed = String(grain === shown.grain);
    button.onclick = () => go({ grain, from: null, to: null });
    return button;
  }));
  at("live").hidden = shown.from === null;
  drawNumbers(store);
  drawBlocks();
};

const drawNumbers = (store = stores[shown.grain]) => {
  if (!shown.paused) charts.show(shown.tab, store, watched, shown);
};
const drawBlocks = () => blocks.show(looked?.blocks ?? [], { sort: sortedBy(), filter: shown.filter });

at("tabs").onclick = (event) => {
  if (event.target.tagName !== "A" || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  go({ tab: event.target.textContent, sort: null });
};
at("live").onclick = () => go({ from: null, to: null });
at("pause").onclick = () => {
  shown.paused = !shown.paused;
  at("pause").ariaPressed = String(shown.paused);
  if (!shown.paused) draw();
};
at("filter").oninput = ({ target }) => { shown.filter = target.value; drawBlocks(); };
at("download").onclick = () => {
  const numbers = stores[shown.grain].document(about.node, shown.from ?? 0, shown.to ?? Infinity);
  const data = { ...numbers, tab: shown.tab, blocks: looked?.blocks ?? [] };
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([JSON.stringify(data)], { type: "application/json" }));
  link.download = `weir-scope-${about.node.replace(/[^\w.@-]/g, "_")}-${shown.tab}.json`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
};
at("ask").onsubmit = (event) => {
  event.preventDefault();
  keepToken(at("token").value);
  at("ask").hidden = true;
  follow();
};
addEventListener("popstate", () => { read(); looked = null; draw(); look(); });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { charts.recolour(); draw(); });

// Asks for the contents of the tab again and again while the page is visible, one request at a time.
let asking = null;
const look = async () => {
  asking?.abort();
  const control = asking = new AbortController();
  while (!control.signal.aborted) {
    const { tab } = shown;
    if (!shown.paused && !document.hidden && about.tabs.length > 0) {
      try {
        const sort = sorts().includes(shown.sort) ? `&sort=${shown.sort}` : "";
        const answer = await get(`/look/${tab}?at=${Math.round(shown.to ?? 0)}${sort}`, control.signal);
        if (control.signal.aborted) return;
        looked = answer;
        const row = tab === "threads" ? watchedIn(answer) : null;
        if (row !== null) watched.add(row);
        drawBlocks();
        if (pauseOf(tab) === null || about.recorded) return;
      } catch (error) {
        if (control.signal.aborted) return;
        say(error.message, true);
      }
    }
    await sleep(pauseOf(tab) ?? 1000);
  }
};

// Numbers --------------------------------------------------------------------------------

const load = async (grain) => {
  const store = stores[grain];
  const all = await get(`/history/${grain}?after=${store.last}`);
  const rows = all.flatMap(({ set, columns, rows }) => rows.map((row) => ({ set, columns, rows: [row] })));
  rows.sort((a, b) => a.rows[0][0] - b.rows[0][0]).forEach((one) => store.add(one));
};

// Rows that arrive while the history is loading are part of it, or are loaded again.
let loading = null;
const loaded = () => (loading ??= load("second").then(drawNumbers, () => {}).finally(() => { loading = null; }));

const event = (name, data) => {
  const store = stores.second;
  if (name === "failure") return say(data, true);
  if (name !== "row") return undefined;
  const { set, row } = JSON.parse(data);
  say("");
  // After a gap, or with unknown columns, load what is missing from the server.
  if (!store.knows(set) || row[0] - store.last > 3000) return loaded();
  store.addRow(set, row);
  if (shown.grain === "second") drawNumbers();
  return undefined;
};

// Until the page is closed: reconnects after a failure and loads what was missed.
const follow = async () => {
  for (;;) {
    try {
      about = await get("/about");
      if (about.recorded) stores.second.most = Infinity;
      await Promise.all([load("second"), load("minute")]);
      say("");
      draw();
      look();
      if (about.recorded) return;
      await stream("/stream", event);
      say("connection lost: trying again", true);
    } catch (error) {
      if (error instanceof Refused) {
        at("ask").hidden = false;
        return say("this server needs a token", true);
      }
      say(`${error.message}: trying again`, true);
    }
    await sleep(1000 + 1000 * Math.random());
  }
};

setInterval(() => {
  if (!about.recorded) load("minute").then(() => shown.grain === "minute" && drawNumbers(), () => {});
}, 60000);
takeToken();
read();
follow();
