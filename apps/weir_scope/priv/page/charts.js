// The charts of one tab. They share the pointer, and a range selected in one applies to all.
import { paint, steps } from "./heat.js";
import { bytes, chartsOf, share } from "./tabs.js";

const height = 160;
const powers = Array.from({ length: 45 }, (_, power) => 2 ** power);
const clock = (second, step) =>
  new Date(second * 1000).toLocaleTimeString("en-GB", {
    hour: "2-digit", minute: "2-digit", ...(step < 60 && { second: "2-digit" }),
  });
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

export class Charts {
  // `selected(from, to)` in milliseconds. If both are null, the whole history is shown and followed.
  constructor(place, selected) {
    this.place = place;
    this.selected = selected;
    this.drawn = [];
    this.sync = globalThis.uPlot?.sync("time");
    const resize = ({ plot, figure }) => plot.setSize({ width: width(figure), height });
    new ResizeObserver(() => this.drawn.forEach(resize)).observe(place);
  }

  // Redraws if the set of lines has changed, otherwise updates their numbers. `watched` is data that only this page
  // has measured.
  show(tab, store, watched, range) {
    if (globalThis.uPlot === undefined) {
      this.place.textContent = "weir_scope was built without the chart library: tables only.";
      return;
    }
    const wanted = chartsOf(tab)
      .map((chart) => ({ ...chart, from: chart.watched ? watched : store }))
      .filter(({ from }) => from.times.length > 1)
      .map((chart) => ({ ...chart, lines: chart.stacked ? stack(chart.series(chart.from)) : chart.series(chart.from) }))
      .filter(({ lines }) => lines.length > 0);
    const shape = JSON.stringify([tab, wanted.map(({ title, lines }) => [title, lines.map(({ label }) => label)])]);
    if (shape !== this.shape) this.draw(wanted, shape);
    this.drawn.forEach((one, index) => {
      const { from, lines } = wanted[index];
      one.lines = lines;
      one.plot.setData([from.seconds, ...lines.map(({ values, top }) => top ?? values)], false);
      one.plot.setScale("x", { min: (range.from ?? from.times[0]) / 1000, max: (range.to ?? from.last) / 1000 });
    });
  }

  draw(wanted, shape) {
    this.drawn.forEach(({ plot }) => plot.destroy());
    this.place.replaceChildren();
    this.shape = shape;
    // Make all figures first: the width of each depends on their number.
    const figures = wanted.map(() => this.place.appendChild(document.createElement("figure")));
    this.drawn = wanted.map((chart, index) => this.plot(figures[index], chart));
  }

  // Redraws everything next time, for another colour scheme.
  recolour() {
    this.shape = undefined;
  }

  plot(figure, { title, unit, lines, stacked, heat, told = unit }) {
    const one = { figure, lines };
    figure.appendChild(document.createElement("h2")).textContent = title;
    const axis = {
      stroke: colour("--soft"),
      grid: { stroke: colour("--grid"), width: 1 },
      ticks: { stroke: colour("--line"), size: 4 },
    };
    const top = (_, __, most) => [0, Math.max(most ?? 0, unit === share ? 0.01 : 1) * 1.08];
    const clocks = (_, splits, __, ___, step) => splits.map((second) => clock(second, step));
    // For a stacked line show its own value, not the sum.
    const show = (_, __, series, at) => {
      const value = at === null ? null : one.lines[series - 1].values[at];
      return value === null || value === undefined ? "" : told(value);
    };
    one.plot = new globalThis.uPlot({
      width: width(figure),
      height,
      scales: { y: heat ? steps(one) : { range: top } },
      cursor: {
        y: false,
        sync: { key: this.sync.key },
        drag: { setScale: false, x: true, y: false },
        bind: { dblclick: () => () => this.selected(null, null) },
      },
      hooks: {
        setSelect: [(plot) => this.chosen(plot)],
        draw: heat ? [(plot) => paint(plot, one.lines[0], colour("--s1"))] : [],
      },
      axes: [
        { ...axis, size: 30, space: 75, values: clocks },
        { ...axis, size: 72, values: (_, splits) => splits.map(unit), ...(unit === bytes && { incrs: powers }) },
      ],
      series: [
        { label: "time", value: "{HH}:{mm}:{ss}" },
        ...lines.map(({ label }, index) => {
          const stroke = colour(`--s${(index % 8) + 1}`);
          return {
            label, stroke, fill: stacked ? stroke : undefined, width: 1.5, value: show, points: { show: false },
            ...(heat && { paths: () => null }),
          };
        }),
      ],
    }, [[], ...lines.map(() => [])], figure);
    return one;
  }

  chosen(plot) {
    const { left, width: wide } = plot.select;
    // The other charts only mirror the selection.
    if (wide < 3 || !plot.cursor.event) return;
    const at = (place) => Math.round(plot.posToVal(place, "x") * 1000);
    const [from, to] = [at(left), at(left + wide)];
    this.drawn.forEach((one) => one.plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false));
    this.selected(from, to);
  }
}

// The highest line first, so that the lower ones are drawn over it.
const stack = (lines) => {
  let below = [];
  return lines.map(({ label, values }) => {
    below = values.map((value, at) => (value ?? 0) + (below[at] ?? 0));
    return { label, values, top: below };
  }).reverse();
};

const width = (figure) => Math.max(240, figure.clientWidth - 24);
