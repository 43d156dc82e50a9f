// The charts of each tab: which columns they show, and how.

export const share = (part) => `${+(100 * part).toFixed(1)} %`;
export const count = (number) => {
  const size = Math.abs(number);
  if (size >= 1e9) return `${+(number / 1e9).toPrecision(3)} G`;
  if (size >= 1e6) return `${+(number / 1e6).toPrecision(3)} M`;
  if (size >= 1e4) return `${+(number / 1e3).toPrecision(3)} k`;
  return `${+number.toPrecision(4)}`;
};
export const bytes = (number) => {
  const power = Math.min(4, Math.max(0, Math.floor(Math.log2(Math.max(1, Math.abs(number))) / 10)));
  return `${+(number / 2 ** (10 * power)).toPrecision(3)} ${["B", "KiB", "MiB", "GiB", "TiB"][power]}`;
};

// If there are more lines than colours, a chart shows only their mean and maximum.
const most = 8;

// A chart of all columns whose names match the pattern. Its first group is the label.
const each = (title, unit, pattern, label = (found) => found) => ({
  title,
  unit,
  series: (store) => {
    const all = [...store.columns].map(([name, values]) => [name.match(pattern)?.[1], values])
      .filter(([found]) => found);
    if (all.length <= most) return all.map(([found, values]) => ({ label: label(found), values }));
    const over = (of) => store.times.map((_, at) => {
      const there = all.map(([, values]) => values[at]).filter((value) => value !== null);
      return there.length > 0 ? of(there) : null;
    });
    const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;
    return [
      { label: `mean of ${all.length}`, values: over(mean) },
      { label: "maximum", values: over((values) => Math.max(...values)) },
    ];
  },
});

// A chart of the largest columns at the end, and of the sum of the others.
const largest = (title, unit, pattern) => ({
  title,
  unit,
  series: (store) => {
    const all = [...store.columns].map(([name, values]) => ({ label: name.match(pattern)?.[1], values }))
      .filter(({ label }) => label)
      .sort((a, b) => (b.values.at(-1) ?? 0) - (a.values.at(-1) ?? 0));
    const rest = all.length > most ? all.splice(most - 1) : [];
    // Sorted by name, so that a line keeps its colour.
    all.sort((a, b) => (a.label < b.label ? -1 : 1));
    if (rest.length === 0) return all;
    const sum = store.times.map((_, at) => rest.reduce((total, { values }) => total + (values[at] ?? 0), 0));
    return [...all, { label: `${rest.length} others`, values: sum }];
  },
});

const some = (title, unit, names) => ({
  title,
  unit,
  series: (store) => names
    .map(([name, label]) => ({ label, values: store.columns.get(name) }))
    .filter(({ values }) => values?.some((value) => value !== null)),
});

const scheduler = (found) => found.replace(".", " ").replace("_", " ");

const utilisation = each("Utilisation of schedulers", share, /^scheduler\.(normal\.\d+)\.utilisation$/, scheduler);
const held = some("Memory: in memory, carriers, blocks", bytes,
  [["memory.rss", "in memory"], ["memory.carriers", "carriers"], ["memory.blocks", "blocks"], ["memory.swap", "swap"]]);
const ready = some("Ready to run", count, [["vm.run_queue", "run queue"]]);
const ports = some("Bytes by ports, per second", bytes, [["vm.bytes_in", "in"], ["vm.bytes_out", "out"]]);
const pressure = some("Pressure of the machine", share,
  [["machine.cpu_pressure", "CPU"], ["machine.io_pressure", "I/O"], ["machine.memory_pressure", "memory"],
    ["machine.throttled", "throttled"]]);
const connections = some("Connections of Weir", count,
  [["listeners.connections", "open"], ["listeners.waiting", "waiting"]]);
const polls = (title, unit, key) =>
  each(title, unit, new RegExp(`^pollset\\.(\\d+)\\.${key}$`),
    (found) => (found > 1024 ? `reactor ${found - 1024}` : `pollset ${found}`));

const micro = (us) => {
  if (us === null) return "";
  if (us < 1e3) return `${+us.toPrecision(3)} µs`;
  return us < 1e6 ? `${+(us / 1e3).toPrecision(3)} ms` : `${+(us / 1e6).toPrecision(3)} s`;
};

const reactors = (title, unit, key) =>
  each(title, unit, new RegExp(`^reactor\\.(\\d+)\\.${key}$`), (found) => `reactor ${found - 1024}`);

// A heat map of replies by the time that they took, in steps of powers of two.
const heat = (title, pattern) => ({
  title,
  unit: micro,
  told: count,
  heat: true,
  series: (store) => {
    const steps = [...store.columns].map(([name, values]) => ({ from: Number(name.match(pattern)?.[1]), values }))
      .filter(({ from }) => from > 0);
    const used = steps.filter(({ values }) => values.some((value) => value > 0));
    const all = store.times.map((_, at) => used.reduce((sum, { values }) => sum + (values[at] ?? 0), 0));
    return used.length > 0 ? [{ label: "replies", values: all, steps: used }] : [];
  },
});

// Microstates are only measured while the page shows them. The mean of each kind of thread, without sleep.
const states = ["emulator", "gc", "port", "check_io", "aux", "other"];
const microstates = (title, kind) => ({
  ...some(title, share, states.map((state) => [`${kind}.${state}`, state])), watched: true, stacked: true,
});

// Makes a row of numbers from the table of threads.
export const watchedIn = ({ at, blocks }) => {
  const table = blocks.find(({ columns }) => columns?.some(({ name }) => name === "check_io"));
  if (table === undefined) return null;
  const index = Object.fromEntries(table.columns.map(({ name }, place) => [name, place]));
  const kinds = new Map();
  for (const row of table.rows) {
    const kind = row[index.name][1].replace(/ \d+$/, "");
    kinds.set(kind, [...(kinds.get(kind) ?? []), row]);
  }
  const names = [];
  const values = [];
  for (const [kind, rows] of kinds) {
    for (const state of states) {
      names.push(`${kind}.${state}`);
      values.push(rows.reduce((sum, row) => sum + (row[index[state]]?.[0] ?? 0), 0) / rows.length);
    }
  }
  return { set: names.join(), columns: names, rows: [[at, ...values]] };
};

const charts = {
  overview: [
    utilisation, held, ready, ports,
    some("Reductions, per second", count, [["vm.reductions", "reductions"]]),
    some("Cost of a sample, microseconds", count, [["scope.us", "sampler"]]),
  ],
  schedulers: [
    utilisation,
    each("CPU of scheduler threads", share, /^scheduler\.(normal\.\d+)\.cpu$/, scheduler),
    each("Scheduler threads waiting for a processor", share, /^scheduler\.(normal\.\d+)\.waited$/, scheduler),
    each("Run queues", count, /^scheduler\.(normal\.\d+)\.run_queue$/, scheduler),
    each("Utilisation of dirty schedulers", share, /^scheduler\.(dirty_\w+\.\d+)\.utilisation$/, scheduler),
    some("Context switches, per second", count, [["vm.context_switches", "switches"]]),
  ],
  memory: [
    held,
    some("Kinds", bytes,
      ["processes", "binary", "ets", "code", "atom", "system"].map((kind) => [`memory.${kind}`, kind])),
    largest("Carriers of allocators", bytes, /^allocator\.(\w+)\.carriers$/),
    largest("Blocks of allocators", bytes, /^allocator\.(\w+)\.blocks$/),
  ],
  processes: [
    some("Processes", count, [["vm.processes", "processes"]]), ready,
    some("Reductions, per second", count, [["vm.reductions", "reductions"]]),
    some("Garbage collections, per second", count, [["vm.collections", "collections"]]),
  ],
  sockets: [
    ports, connections,
    some("Accepted and refused by listeners, per second", count,
      [["listeners.accepted", "accepted"], ["listeners.overload", "too many"], ["listeners.denied", "denied"]]),
    some("Ports", count, [["vm.ports", "ports"]]),
  ],
  polls: [
    polls("Polls, per second", count, "times"), polls("Events, per second", count, "revents"),
    polls("Ready sockets per poll", count, "avg"), polls("Empty polls, per second", count, "timeouts"),
    each("Descriptors in OTP's poll sets", count, /^poll_set\.(\d+)\.descriptors$/, (found) => `set ${found}`),
  ],
  latency: [
    some("From request to reply", micro,
      [["latency.med", "median"], ["latency.95_max", "95 %"], ["latency.99_max", "99 %"], ["latency.max", "maximum"]]),
    heat("Replies by the time they took", /^latency\.from_us\.(\d+)$/),
    some("Replies, per second", count, [["latency.count", "replies"]]), ready,
  ],
  threads: [
    microstates("Schedulers, while this page is open", "scheduler"),
    microstates("Dirty CPU schedulers", "dirty_cpu_scheduler"),
    microstates("Dirty I/O schedulers", "dirty_io_scheduler"), microstates("Poll threads", "poll"), utilisation,
  ],
  weir: [
    connections,
    some("Accepted and refused by listeners, per second", count,
      [["listeners.accepted", "accepted"], ["listeners.overload", "too many"], ["listeners.denied", "denied"]]),
    reactors("Time that reactors spend in callbacks", share, "busy"),
    reactors("Callbacks, per second", count, "callbacks"),
    reactors("Mean time of a callback", micro, "mean_us"),
    some("Relays and groups", count, [["weir.relays", "relays"], ["weir.groups", "groups"]]),
  ],
  machine: [pressure, some("Retransmits and overflows, per second", count,
    [["machine.retransmits", "retransmits"], ["machine.listen_overflows", "overflows"]])],
};

export const chartsOf = (tab) => charts[tab] ?? [];

// Milliseconds between requests. Tabs that cost more than a sample are requested less often; null: only once.
const pauses = { processes: 3000, sockets: 3000, locks: 3000, weir: 2000, threads: 2000, clocks: null, doctor: null };
export const pauseOf = (tab) => (tab in pauses ? pauses[tab] : 1000);
