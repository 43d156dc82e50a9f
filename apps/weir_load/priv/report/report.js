// Draws a report from the document in the page: the one that `--json` writes.
(() => {
  "use strict";

  const data = JSON.parse(document.getElementById("document").textContent);
  const { total, seconds } = data;
  const colours = ["#2563eb", "#d97706", "#b3261e", "#1a7f4b", "#7c3aed", "#5d6b7a"];
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
  const bytes = (number) => (number == null ? "–" : `${+(number / 2 ** 20).toPrecision(4)} MiB`);

  const element = (name, parent, text) => {
    const made = parent.appendChild(document.createElement(name));
    if (text !== undefined) made.textContent = text;
    return made;
  };

  // Several runs stand one behind the other.
  const xs = seconds.map((_, index) => index);
  // A logarithm has no place for 0: what is faster than a tenth of a microsecond is drawn as that.
  const drawn = (us) => (us == null ? null : Math.max(us, 0.1));
  const over = (key, figure) => seconds.map((second) => drawn(second[key]?.[figure]));

  const chart = (title, x, xAxis, series, values, scales = {}) => {
    const figure = element("figure", document.getElementById("charts"));
    element("h2", figure, title);
    const place = element("div", figure);
    const width = () => Math.max(280, place.clientWidth);
    const plot = new uPlot({
      width: width(),
      height: 260,
      padding: [null, 28, null, null],
      scales: { x: { time: false }, ...scales },
      axes: [
        { ...xAxis, grid: { stroke: "#eef1f5" } },
        ...Object.entries(values).map(([scale, show], index) => ({
          scale, size: 80, side: index === 0 ? 3 : 1, grid: { show: index === 0, stroke: "#eef1f5" },
          values: (_, splits) => splits.map((split) => (split == null ? "" : show(split))),
        })),
      ],
      series: [
        { label: xAxis.label, value: (_, value) => (value == null ? "–" : xAxis.show(value)) },
        ...series.map(({ label, scale = "y", dash }, index) => ({
          label, scale, dash, stroke: colours[index % colours.length], width: 1.5,
          value: (_, value) => (value == null ? "–" : values[scale](value)),
          points: { show: x.length < 50 },
        })),
      ],
    }, [x, ...series.map((one) => one.values)], place);
    addEventListener("resize", () => plot.setSize({ width: width(), height: 260 }));
  };

  const perSecond = { label: "second", show: String };
  const logarithmic = { y: { distr: 3 } };

  // What is asked for has a response time; what is pushed, a delay.
  const [subject, key] = total.response_us ? ["Response time", "response_us"] : ["Delay of messages", "push_us"];
  if (total[key]) {
    const percentiles = [["p50", "p50"], ["p90", "p90"], ["p99", "p99"], ["max", "max"]];
    const series = percentiles.map(([label, figure]) => ({ label, values: over(key, figure) }));
    if (total.lag_us) series.push({ label: "own lag p99", values: over("lag_us", "p99"), dash: [4, 4] });
    chart(`${subject} over time`, xs, perSecond, series, { y: time }, logarithmic);
  }

  const rates = [];
  if (total.offered != null) rates.push({ label: "offered", values: seconds.map((second) => second.offered) });
  if (total.answered > 0 || total.offered != null)
    rates.push({ label: "answered", values: seconds.map((second) => second.answered) });
  if (total.pushed > 0) rates.push({ label: "pushed", values: seconds.map((second) => second.pushed) });
  if (rates.length > 0) chart("Offered and achieved, per second", xs, perSecond, rates, { y: count });

  const spectra = measures
    .map(([label, name]) => [label, data.spectrum[name.replace("_us", "")]])
    .filter(([label, spectrum]) => spectrum && label !== "own lag" && label !== "connect");
  if (spectra.length > 0) {
    // Each nine takes as much room as the one before.
    const nines = spectra[0][1].percentile.map((_, index) => index / 10);
    const show = (nine) => `${+(100 * (1 - 10 ** -nine)).toFixed(Math.max(0, Math.ceil(nine) - 2) + 1)} %`;
    const axis = { label: "of all", show, splits: () => [0, 1, 2, 3, 4, 5], values: (_, splits) => splits.map(show) };
    const series = spectra.map(([label, spectrum]) => ({ label, values: spectrum.us.map(drawn) }));
    chart("Latency spectrum to 99.999 %", nines, axis, series, { y: time }, logarithmic);
  }

  const kinds = Object.keys(total.errors).sort();
  const errors = kinds.length > 0
    ? kinds.map((kind) => ({ label: kind, values: seconds.map((second) => second.errors[kind] ?? 0) }))
    : [{ label: "errors", values: seconds.map(() => 0) }];
  chart("Errors, per second", xs, perSecond, errors, { y: count },
    kinds.length > 0 ? {} : { y: { range: [0, 1] } });

  if (seconds.some((second) => second.server)) {
    const server = (name) => seconds.map((second) => second.server?.[name] ?? null);
    chart("The server", xs, perSecond, [
      { label: "cores", values: server("cpu") },
      { label: "memory", values: server("rss_bytes"), scale: "bytes" },
    ], { y: (cores) => `${+cores.toFixed(2)} cores`, bytes });
  }

  // In words and figures.
  document.title = `weir load ${data.scenario} ${data.target}`;
  document.getElementById("title").textContent = `${data.scenario} on ${data.target}`;
  const load = { open: `open loop, ${data.rate} a second (${data.arrivals})`,
    closed: `closed loop, ${data.concurrency} at a time`, none: "nothing is asked for" }[data.loop];
  document.getElementById("about").textContent =
    `${data.started} · ${load} · ${count(data.connections || total.connected)} connections · ` +
    `${data.duration_s} s after ${data.warmup_s} s of warm-up` + (data.runs ? ` · ${data.runs.length} runs` : "");
  const verdict = document.getElementById("verdict");
  const kept = data.promises.every((promise) => promise.kept);
  verdict.textContent = [
    ...data.invalid.map((reason) => `Invalid: ${reason}.`),
    ...(data.interrupted ? ["Interrupted: this is what was measured until then."] : []),
    ...data.promises.map((promise) => `${promise.promise}: ${promise.kept ? "kept" : "broken"}`),
  ].join("\n");
  verdict.className = data.valid && kept ? "good" : "bad";

  const table = element("table", document.getElementById("figures"));
  const figures = ["count", "min", "mean", "p50", "p90", "p99", "p999", "p9999", "p99999", "max"];
  const row = (cells, name) => {
    const line = element("tr", table);
    for (const cell of cells) element(name, line, cell);
  };
  row(["", ...figures], "th");
  for (const [label, name] of measures) {
    const latency = total[name];
    if (latency) row([label, ...figures.map((f) => (f === "count" ? count(latency[f]) : time(latency[f])))], "td");
  }
  const rate = (value) => (value == null ? "–" : `${count(value)}/s`);
  element("p", document.getElementById("figures"),
    `Offered ${count(total.offered)} (${rate(total.offered_rate)}), answered ${count(total.answered)} ` +
    `(${rate(total.achieved_rate)}), pushed ${count(total.pushed)}, connected ${count(total.connected)}, ` +
    `errors ${count(total.error_count)}.`);
})();
