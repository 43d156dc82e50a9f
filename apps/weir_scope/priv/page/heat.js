// A heat map: the number of replies in each step of time for each moment. A step goes from a power of two to the next.

// The scale covers the steps that are used.
export const steps = (one) => ({
  distr: 3,
  log: 2,
  range: () => {
    const from = one.lines[0].steps.map((step) => step.from);
    return [Math.min(...from), 2 * Math.max(...from)];
  },
});

// By the square root, so that a few slow replies stay visible beside many fast ones.
const strength = (part) => 0.12 + 0.88 * Math.sqrt(part);

export const paint = (plot, { steps }, colour) => {
  const [seconds] = plot.data;
  const { ctx } = plot;
  const { left, top, width, height } = plot.bbox;
  const most = Math.max(...steps.flatMap(({ values }) => values.map((value) => value ?? 0)));
  // A cell before a gap is as wide as the others.
  const gaps = seconds.slice(1).map((second, index) => second - seconds[index]).sort((a, b) => a - b);
  const usual = gaps[gaps.length >> 1] ?? 1;
  const x = (second) => plot.valToPos(second, "x", true);
  const y = (us) => plot.valToPos(us, "y", true);
  ctx.save();
  ctx.beginPath();
  ctx.rect(left, top, width, height);
  ctx.clip();
  ctx.fillStyle = colour;
  for (const { from, values } of steps) {
    const [high, low] = [y(2 * from), y(from)];
    values.forEach((value, at) => {
      if (!(value > 0)) return;
      const begin = at > 0 && seconds[at] - seconds[at - 1] < 2 * usual ? seconds[at - 1] : seconds[at] - usual;
      ctx.globalAlpha = strength(value / most);
      ctx.fillRect(x(begin), high, Math.max(1, x(seconds[at]) - x(begin)), low - high);
    });
  }
  ctx.restore();
};
