// The part of a tab below its charts: lines of text, and tables sorted by a column.

const element = (name, parent, text) => {
  const made = parent.appendChild(document.createElement(name));
  if (text !== undefined) made.textContent = text;
  return made;
};

// Numbers in names are compared as numbers: thread 10 comes after thread 9.
const names = new Intl.Collator("en", { numeric: true });
const compare = (a, b) => (typeof a === "number" && typeof b === "number" ? a - b : names.compare(a, b));

// Columns that are sorted in ascending order; all others are descending.
const ascends = (column) => ["number", "name", "pid", "kind"].includes(column);

export class Blocks {
  // `sort(column)` is called when the user selects a sort column.
  constructor(place, sort) {
    this.place = place;
    this.sort = sort;
  }

  show(blocks, { sort, filter }) {
    const made = document.createDocumentFragment();
    for (const block of blocks) {
      if (block.text) element("pre", made, block.text.join("\n"));
      else this.table(made, block, sort, filter.toLowerCase());
    }
    this.place.replaceChildren(made);
  }

  table(parent, { columns, rows }, sort, filter) {
    const table = element("table", parent);
    const head = element("tr", element("thead", table));
    for (const { name, title, side } of columns) {
      const cell = element("th", head);
      cell.className = side;
      if (title === "") continue;
      const button = element("button", cell, title);
      button.type = "button";
      button.onclick = () => this.sort(name);
      if (name === sort) cell.ariaSort = ascends(name) ? "ascending" : "descending";
    }
    const by = columns.findIndex(({ name }) => name === sort);
    const kept = rows.filter((row) => row.some(([, text]) => text.toLowerCase().includes(filter)));
    if (by >= 0) kept.sort((a, b) => compare(a[by][0], b[by][0]) * (ascends(sort) ? 1 : -1));
    const body = element("tbody", table);
    for (const row of kept) {
      const line = element("tr", body);
      row.forEach(([, text], index) => { element("td", line, text).className = columns[index].side; });
    }
  }
}
