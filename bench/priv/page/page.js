// Draws ramps: the 99th percentile over the offered rate, a line for each contestant.
(() => {
  "use strict";

  // A page that was built without the chart library shows only bars.
  if (typeof uPlot === "undefined") return;
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const ink = dark ? "#9aa7b5" : "#5d6b7a";
  const grid = { stroke: dark ? "#232c36" : "#eef1f5" };
  const colours = ["#2563eb", "#d97706", "#b3261e", "#1a7f4b", "#7c3aed", "#0e8a9a", "#8a97a6"];
  const time = (us) => {
    if (us == null) return "–";
    if (us < 1e3) return `${+us.toPrecision(3)} µs`;
    if (us < 1e6) return `${+(us / 1e3).toPrecision(3)} ms`;
    return `${+(us / 1e6).toPrecision(3)} s`;
  };
  const count = (number) => (number == null ? "–" : Math.round(number).toLocaleString("en"));

  const ramps = JSON.parse(document.getElementById("ramps").textContent);
  for (const place of document.querySelectorAll(".ramp")) {
    const lines = ramps[place.dataset.scenario];
    // All contestants were offered the same rate in each second.
    const longest = lines.reduce((a, b) => (b.seconds.length > a.seconds.length ? b : a)).seconds;
    const values = lines.map(({ seconds }) => longest.map((_, at) => seconds[at]?.p99_us ?? null));
    const width = () => Math.max(280, place.clientWidth);
    const plot = new uPlot({
      width: width(),
      height: 280,
      padding: [null, 28, null, null],
      scales: { x: { time: false }, y: { distr: 3 } },
      axes: [
        { label: "offered a second", stroke: ink, grid, ticks: grid, values: (_, splits) => splits.map(count) },
        { label: "p99 of that second", stroke: ink, grid, ticks: grid, size: 80,
          values: (_, splits) => splits.map((split) => (split == null ? "" : time(split))) },
      ],
      series: [
        { label: "offered", value: (_, value) => count(value) },
        ...lines.map(({ title }, index) => ({
          label: title, stroke: colours[index % colours.length], width: 1.5, value: (_, value) => time(value),
        })),
      ],
    }, [longest.map((second) => second.offered), ...values], place);
    addEventListener("resize", () => plot.setSize({ width: width(), height: 280 }));
  }
})();
