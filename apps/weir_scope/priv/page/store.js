// Samples, as a column of numbers for each name: the last ten minutes, or the last day.

export class Store {
  constructor(most) {
    this.most = most;
    this.clear();
  }

  clear() {
    this.times = [];
    this.columns = new Map();
    this.sets = new Map();
  }

  get last() {
    return this.times.at(-1) ?? 0;
  }

  knows(set) {
    return this.sets.has(set);
  }

  // Adds rows with the same columns, as the server sends them: the time in milliseconds, then the values.
  add({ set, columns, rows }) {
    // Keep the names of the last eight sets of columns.
    if (!this.sets.has(set) && this.sets.size >= 8) this.sets.delete(this.sets.keys().next().value);
    this.sets.set(set, columns);
    for (const row of rows) this.addRow(set, row);
  }

  addRow(set, [at, ...values]) {
    if (at <= this.last) return;
    this.times.push(at);
    this.sets.get(set).forEach((name, index) => {
      let column = this.columns.get(name);
      if (column === undefined) {
        column = new Array(this.times.length - 1).fill(null);
        this.columns.set(name, column);
      }
      column.push(values[index]);
    });
    for (const [name, column] of this.columns) {
      if (column.length < this.times.length) column.push(null);
      if (this.times.length > this.most) column.shift();
      if (this.times.length > this.most && column.every((value) => value === null)) this.columns.delete(name);
    }
    if (this.times.length > this.most) this.times.shift();
  }

  // Times in seconds since 1970, for charts.
  get seconds() {
    return this.times.map((at) => at / 1000);
  }

  document(node, from, to) {
    const inside = this.times.map((at) => at >= from && at <= to);
    const cut = (all) => all.filter((_, index) => inside[index]);
    const columns = Object.fromEntries([...this.columns].map(([name, column]) => [name, cut(column)]));
    return { format: "weir_scope", version: 1, node, at: cut(this.times), columns };
  }
}
