// Draws the report from the document in the page, which is the one that `--json` writes.
"use strict";

{
  const data = JSON.parse(document.getElementById("document").textContent);
  const { total, seconds } = data;
  const measures = [
    ["response", "response_us"], ["service", "service_us"], ["connect", "connect_us"],
    ["first byte", "first_byte_us"], ["push", "push_us"], ["own lag", "lag_us"],
  ];

  const time = (us) => {
    if (us == null) return "–";
    if (us < 1e3) return `${+us.toPrecision(3)} µs`;
    if (us < 1e6) return `${+(us / 1e3).toPrecision(3)} ms`;
    return `${+(us / 1e6).toPrecision(3)} s`;
  };
  const count = (number) => (number == null ? "–" : number.toLocaleString("en"));
  const rate = (number) => (number == null ? "–" : `${count(+number.toPrecision(5))}/s`);
  const bytes = (number) => {
    if (number == null) return "–";
    const power = Math.min(3, Math.floor(Math.log2(Math.max(1, number)) / 10));
    return `${+(number / 2 ** (10 * power)).toPrecision(4)} ${["B", "KiB", "MiB", "GiB"][power]}`;
  };
  const share = (part) => (part == null ? "–" : `${+(100 * part).toFixed(1)} %`);
  const cores = (number) => (number == null ? "–" : `${+number.toFixed(2)} cores`);

  const element = (name, parent, text) => {
    const made = parent.appendChild(document.createElement(name));
    if (text !== undefined) made.textContent = text;
    return made;
  };

  // Several runs follow each other on the axis.
  const xs = seconds.map((_, index) => index);
  // A logarithmic axis has no 0: anything below 0.1 µs is drawn as 0.1 µs.
  const drawn = (us) => (us == null ? null : Math.max(us, 0.1));
  const longest = (key) => seconds.map((second) => drawn(second[key]?.max));
  // Seconds after the window have only the last answers: too few for a rate or a percentile.
  const inside = (value) => seconds.map((second) => (second.second < data.duration_s ? value(second) ?? null : null));

  const perSecond = { label: "second", show: String };
  const logarithmic = { distr: 3 };
  const fromZero = { range: (_, __, most) => [0, Math.max(most ?? 0, 1e-9) * 1.08] };

  // The charts, without colours, so that they can be drawn again.
  const charts = [];
  const chart = (title, x, xAxis, series, values, y = fromZero) => charts.push({ title, x, xAxis, series, values, y });

  // Answers have a response time; pushed messages have a delay.
  const [subject, key] = total.response_us ? ["Response time", "response_us"] : ["Delay of messages", "push_us"];
  if (total[key]) {
    const over = (name, figure) => inside((second) => drawn(second[name]?.[figure]));
    const series = ["p50", "p90", "p99"].map((figure) => ({ label: figure, values: over(key, figure) }));
    series.push({ label: "max", values: longest(key) });
    if (total.lag_us) series.push({ label: "own lag p99", values: over("lag_us", "p99"), dash: [4, 4] });
    chart(`${subject} over time`, xs, perSecond, series, { y: time }, logarithmic);
  }

  const rates = [];
  if (total.offered != null) rates.push({ label: "offered", values: inside((second) => second.offered) });
  if (total.answered > 0 || total.offered != null) {
    const dash = total.offered != null && [6, 3];
    rates.push({ label: "answered", values: inside((second) => second.answered), dash });
  }
  if (total.pushed > 0) rates.push({ label: "pushed", values: inside((second) => second.pushed) });
  const ofRates = total.offered != null ? "Offered and achieved" : total.pushed > 0 ? "Messages" : "Answers";
  if (rates.length > 0) chart(`${ofRates}, per second`, xs, perSecond, rates, { y: rate });

  const spectra = measures
    .map(([label, name]) => [label, data.spectrum[name.replace("_us", "")]])
    .filter(([label, spectrum]) => spectrum && label !== "own lag" && label !== "connect");
  if (spectra.length > 0) {
    // Each nine has the same width.
    const nines = spectra[0][1].percentile.map((_, index) => index / 10);
    const show = (nine) => `${+(100 * (1 - 10 ** -nine)).toFixed(Math.max(0, Math.ceil(nine) - 2) + 1)} %`;
    const values = (_, splits) => splits.map(show);
    const axis = { label: "percentile", show, splits: () => [0, 1, 2, 3, 4, 5], values };
    const dashes = [undefined, undefined, [4, 4]];
    const series = spectra.map(([label, spectrum], index) =>
      ({ label, values: spectrum.us.map(drawn), dash: dashes[index] }));
    chart("Latency spectrum to 99.999 %", nines, axis, series, { y: time }, logarithmic);
  }

  const kinds = Object.keys(total.errors).sort();
  if (kinds.length > 0) {
    const errors = kinds.map((kind) => ({ label: kind, values: seconds.map((second) => second.errors[kind] ?? 0) }));
    chart("Errors, per second", xs, perSecond, errors, { y: count });
  }

  const server = (value) => inside((second) => second.server && value(second.server));
  if (seconds.some((second) => second.server)) {
    chart("Server: CPU and memory", xs, perSecond, [
      { label: "CPU", values: server((seen) => seen.cpu) },
      { label: "memory", values: server((seen) => seen.rss_bytes), scale: "bytes" },
    ], { y: cores, bytes });
  }
  // One line for each, or the mean and the maximum if there are more than 8.
  const each = (name, label, value) => {
    const latest = seconds.findLast((second) => second.server?.[name])?.server[name];
    if (latest === undefined) return [];
    const all = latest.map((one, index) => ({
      label: label(one, index),
      values: server((seen) => value(seen[name]?.[index])),
    }));
    // Leave out pollsets without events, as there are where reactors have their own.
    const alive = name === "pollsets" ? all.filter(({ values }) => values.some((events) => events > 0)) : all;
    if (alive.length > 0 && alive.length <= 8) return alive;
    const of = (sum) => server((seen) => seen[name] && sum(seen[name].map(value)));
    return [
      { label: "mean", values: of((all) => all.reduce((sum, one) => sum + one, 0) / all.length) },
      { label: "most", values: of((all) => Math.max(...all)) },
    ];
  };
  const schedulers = each("schedulers", (_, index) => `scheduler ${index + 1}`, (part) => part);
  if (schedulers.length > 0)
    chart("Server: scheduler utilization", xs, perSecond, schedulers, { y: share }, { range: [0, 1] });
  const pollsets = each("pollsets",
    ({ pollset }) => (pollset > 1024 ? `reactor ${pollset - 1024}` : `pollset ${pollset}`), (one) => one?.events);
  if (pollsets.length > 0) {
    chart("Server: events of pollsets, per second", xs, perSecond, pollsets, { y: rate });
    const sum = (name) => server((seen) => seen.pollsets?.reduce((all, one) => all + one[name], 0));
    chart("Server: polls, per second", xs, perSecond, [
      { label: "polls", values: sum("polls") },
      { label: "empty polls", values: sum("empty_polls") },
      { label: "sleeps", values: sum("sleeps") },
    ], { y: rate });
  }

  // Draws the charts, and again when the colour scheme changes.
  const height = 250;
  const style = getComputedStyle(document.documentElement);
  const colour = (name) => style.getPropertyValue(name).trim();
  let plots = [];

  const draw = ({ title, x, xAxis, series, values, y }) => {
    const figure = element("figure", document.getElementById("charts"));
    element("h2", figure, title);
    const place = element("div", figure);
    const width = () => Math.max(280, place.clientWidth);
    // Grid lines only at powers of ten.
    const tens = (_, splits) => splits.map((split) => (y.distr === 3 && Math.log10(split) % 1 !== 0 ? null : split));
    const every = (_, splits) => splits;
    const grid = { stroke: colour("--grid"), width: 1, filter: tens };
    const lines = { stroke: colour("--soft"), ticks: { stroke: colour("--line"), size: 4, filter: tens } };
    const scales = { x: { time: false }, y };
    const colourOf = (index) => colour(`--s${((index - 1) % 8) + 1}`);
    for (const scale of Object.keys(values)) scales[scale] ??= fromZero;
    const plot = new uPlot({
      width: width(),
      height,
      padding: [12, "bytes" in values ? 8 : 36, 0, 0],
      scales,
      cursor: { y: false, points: { size: 8, width: 0, fill: (_, index) => colourOf(index) } },
      axes: [
        { ...lines, ...xAxis, labelFont: "13px system-ui, sans-serif", labelSize: 22, size: 32,
          grid: { ...grid, filter: every }, ticks: { ...lines.ticks, filter: every },
          ...(xAxis === perSecond && { incrs: [1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600] }) },
        ...Object.entries(values).map(([scale, show], index) => ({
          ...lines, scale, size: 84, side: index === 0 ? 3 : 1, grid: index === 0 ? grid : { show: false },
          ...(scale === "bytes" && { incrs: Array.from({ length: 40 }, (_, power) => 2 ** (power + 10)) }),
          values: (_, splits) => splits.map((split) => (split == null ? "" : show(split))),
        })),
      ],
      series: [
        { label: xAxis.label, value: (_, value) => (value == null ? "" : xAxis.show(value)) },
        ...series.map(({ label, scale = "y", dash }, index) => ({
          label, scale, dash: dash || undefined, stroke: colourOf(index + 1), width: 1.75,
          value: (_, value) => (value == null ? "" : values[scale](value)),
          points: { show: x === xs && Math.min(x.length, data.duration_s) < 2, fill: colour("--card") },
        })),
      ],
    }, [x, ...series.map((one) => one.values)], place);
    plots.push({ plot, width });
  };

  const drawAll = () => {
    plots.forEach(({ plot }) => plot.destroy());
    plots = [];
    document.getElementById("charts").replaceChildren();
    charts.forEach(draw);
  };
  addEventListener("resize", () => plots.forEach(({ plot, width }) => plot.setSize({ width: width(), height })));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);

  // Text and figures first, so that the charts know how much room is left.
  document.title = `weir load ${data.scenario} ${data.target}`;
  document.getElementById("title").textContent = `${data.scenario} on ${data.target}`;
  const load = { open: `open loop, ${data.rate} a second (${data.arrivals})`,
    closed: `closed loop, ${data.concurrency} at a time`, none: "no requests" }[data.loop];
  document.getElementById("about").textContent = [
    data.started, load, `${count(data.connections || total.connected)} connections${data.tls ? " within TLS" : ""}`,
    `${data.duration_s} s` + (data.warmup_s > 0 ? ` after ${data.warmup_s} s of warm-up` : ""),
    ...(data.runs ? [`${data.runs.length} runs`] : []),
    ...(data.nodes.length > 1 ? [`from ${data.nodes.length} nodes`] : []),
    ...(data.observe ? [`server: ${Number(data.observe) ? "process " : ""}${data.observe}`] : []),
  ].join(" · ");

  const verdict = (good, text) => {
    element("li", document.getElementById("verdict"), text).className = good ? "good" : "bad";
  };
  data.invalid.forEach((reason) => verdict(false, `Invalid: ${reason}.`));
  if (data.interrupted) verdict(false, "Interrupted: these are the results until then.");
  for (const { promise, kept, value } of data.promises)
    verdict(kept, `${promise}: ${kept ? "kept" : "broken"}${value == null ? ", because nothing was measured" : ""}`);

  const tile = (name, value, bad) => {
    const box = element("div", document.getElementById("tiles"));
    element("dt", box, name);
    element("dd", box, value).className = bad ? "bad" : "";
  };
  if (total.offered != null) tile("offered", rate(total.offered_rate));
  if (total.pushed > 0) tile("pushed", rate(total.pushed_rate));
  else if (data.loop !== "none") tile("answered", rate(total.achieved_rate));
  if (total[key]) for (const [label, figure] of [["p50", "p50"], ["p99", "p99"], ["p99.9", "p999"]])
    tile(`${subject === "Response time" ? "response" : "delay"}, ${label}`, time(total[key][figure]));
  tile("connected", `${count(total.connected)} ×`);
  tile("errors", total.error_count > 0 ? count(total.error_count) : "none", total.error_count > 0);

  const table = element("table", document.getElementById("figures"));
  const figures = [["count", "count"], ["min", "min"], ["mean", "mean"], ["p50", "p50"], ["p90", "p90"], ["p99", "p99"],
    ["p99.9", "p999"], ["p99.99", "p9999"], ["p99.999", "p99999"], ["max", "max"]];
  const row = (cells, name) => {
    const line = element("tr", table);
    for (const cell of cells) element(name, line, cell);
  };
  row(["", ...figures.map(([label]) => label)], "th");
  for (const [label, name] of measures) {
    const latency = total[name];
    if (latency) row([label, ...figures.map(([, f]) => (f === "count" ? count(latency[f]) : time(latency[f])))], "td");
  }
  const sentence = [
    ...(total.offered == null ? [] : [`offered ${count(total.offered)}`]), 
    ...(total.sent > 0 ? [`sent ${count(total.sent)}`, `answered ${count(total.answered)}`] : []),
    ...(total.pushed > 0 ? [`pushed ${count(total.pushed)}`] : []),
    `${bytes(total.bytes_sent)} out`, `${bytes(total.bytes_received)} in`,
  ].join(", ");
  element("p", document.getElementById("figures"), `In ${+total.elapsed_s.toFixed(2)} s: ${sentence}.`);

  drawAll();
}
