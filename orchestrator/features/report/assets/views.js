// The views: a chart and a table of the same cells, which share filters. Python wrote the tables and chose the lines.

// A key with more values is no filter.
const MOST_CHOICES = 100;

class Views {
  constructor(views, drill) {
    this.views = views;
    this.drill = drill;
    this.nodes = new Map(); // number of a view -> its table, once prepared
    this.where = {}; // name of a key -> the codes that pass the filter
    this.log = state.get("log") !== "0";
    this.number = Number(state.get("view")) || 0;
    if (!views[this.number]) this.number = 0;
    for (const part of (state.get("where") ?? "").split(";")) {
      const [name, codes] = part.split(":");
      const known = codes?.split(",").map(Number).filter((code) => drill.data.keys[name]?.labels[code] != null);
      if (known?.length) this.where[name] = new Set(known);
    }
    this.showFilters();
    const select = document.getElementById("view");
    if (select) {
      select.value = this.number;
      select.addEventListener("change", () => {
        this.number = Number(select.value);
        this.value = null;
        remember("view", this.number || null);
        remember("value", null);
        this.show();
      });
    }
    this.value = state.get("value");
    if (views.length) this.show();
  }

  get view() { return this.views[this.number]; }

  // Whether a cell passes the filters, by its last result: of a compared cell, the option's. One without a result passes.
  allowed = (cell) => {
    const result = this.view.cells[cell].at(-1);
    return Object.entries(this.where).every(([name, codes]) => result < 0 || codes.has(this.drill.code(name, result)));
  };

  open(cell, words) {
    const [value, ...results] = this.view.cells[cell];
    if (results.some((result) => result >= 0)) this.drill.open(value, results.filter((result) => result >= 0), words);
  }

  show() {
    this.showTable();
    this.showChart();
  }

  showTable() {
    const target = document.getElementById("matrix");
    if (!this.nodes.has(this.number)) {
      const { content } = document.getElementById(`view-${this.number}`);
      const nodes = this.number ? [...content.childNodes] : [...target.childNodes];
      this.nodes.set(this.number, nodes);
      target.replaceChildren(...nodes);
      const table = target.querySelector("table");
      if (table) this.prepare(table);
      this.nodes.set(this.number, [...target.childNodes]);
    }
    target.replaceChildren(...this.nodes.get(this.number));
    const table = target.querySelector("table");
    if (table) this.filterTable(table);
  }

  prepare(table) {
    table.querySelectorAll("[data-cell]").forEach((cell) => opens(cell, () => this.open(Number(cell.dataset.cell), wordsOf(cell.parentElement))));
    prepareTable(table);
    walkable(table);
    table.closest(".scroll").after(tableTools("the results", table));
  }

  // Hides the rows and columns without a chosen cell.
  filterTable(table) {
    const shown = new Set();
    for (const row of table.tBodies[0].rows) {
      let any = false;
      for (const cell of row.querySelectorAll("[data-cell]")) {
        const out = !this.allowed(Number(cell.dataset.cell));
        cell.classList.toggle("out", out);
        any ||= !out;
        if (!out) shown.add(cell.cellIndex);
      }
      row.classList.toggle("filtered", !any);
    }
    if (this.view.compared) return;
    for (const row of table.tBodies[0].rows) {
      for (const cell of row.querySelectorAll("td")) cell.hidden = !shown.has(cell.cellIndex);
    }
    headerCells(table).forEach((cells, column) => {
      const [lowest] = cells.slice(-1);
      if (lowest && lowest.scope !== "row" && lowest.colSpan === 1 && table.tBodies[0].rows[0]?.cells[column]?.tagName === "TD") lowest.hidden = !shown.has(column);
    });
  }

  showChart() {
    const { charts } = this.view;
    const names = Object.keys(charts);
    const value = names.includes(this.value) ? this.value : names[0];
    const target = document.getElementById("chart");
    const chart = charts[value];
    this.showAxes(names, value);
    target.closest("figure").classList.toggle("empty", !chart);
    const note = document.getElementById("chart-note");
    note.textContent = "";
    if (!chart) {
      Plotly.purge(target);
      drawn.delete(target);
      return;
    }
    const isLog = this.log && !this.view.compared;
    const { traces, hidden } = drawLines(target, chart, { isLog, allowed: this.allowed, compared: this.view.compared });
    target.removeAllListeners?.("plotly_click");
    target.on("plotly_click", ({ points: [point] }) => {
      const cell = traces[point.curveNumber]?.cells[point.pointIndex];
      if (cell != null) this.open(cell);
    });
    const out = traces.filter((trace) => trace.isOut).flatMap((trace) => trace.x).length;
    const many = (count, one, several) => `${count} ${count === 1 ? one : several}`;
    note.textContent = [
      isLog && hidden && `${many(hidden, "result is", "results are")} 0 or less, which a logarithmic axis cannot show: untick log y, or see the table.`,
      out && `${many(out, "result", "results")} ran out of memory, drawn as crosses at the memory of their device.`,
      chart.undrawn && `${many(chart.undrawn, "result has", "results have")} no number and ${chart.undrawn === 1 ? "is" : "are"} not drawn; the table says why.`,
      chart.left && `${many(chart.left, "more line is", "more lines are")} in the table.`,
    ].filter(Boolean).join(" ");
  }

  showAxes(names, value) {
    const choose = (name, chosen, kept) => {
      this[name] = chosen;
      remember(name, kept);
      this.showChart();
    };
    document.getElementById("axes").replaceChildren(...[
      names.length > 1 && element("label", {}, "y axis ", element(
        "select", { id: "drawn", onchange: ({ target }) => choose("value", target.value, target.value) },
        ...names.map((name) => element("option", { value: name, selected: name === value }, name)))),
      names.length && !this.view.compared && element("label", {}, element(
        "input", { id: "log-y", type: "checkbox", checked: this.log, onchange: ({ target }) => choose("log", target.checked, target.checked ? null : "0") }), " log y"),
    ].filter(Boolean));
  }

  // Keys offered as filters: of several that divide the results in the same way, only the first.
  worthFiltering() {
    const { keys, conditions, results } = this.drill.data;
    const divisions = new Set();
    return conditions.filter((name) => keys[name]?.codes && keys[name].labels.length <= MOST_CHOICES).filter((name) => {
      const met = new Map();
      const division = Array.from({ length: results }, (_, i) => this.drill.code(name, i))
        .map((code) => met.get(code) ?? met.set(code, met.size).get(code)).join();
      return divisions.size < divisions.add(division).size;
    });
  }

  showFilters() {
    const names = this.worthFiltering();
    if (!names.length) return;
    const menus = names.map((name) => {
      const { labels } = this.drill.data.keys[name];
      const boxes = labels.map((_, code) => element("input", {
        type: "checkbox", checked: !this.where[name] || this.where[name].has(code),
        onchange: () => this.filter(name, boxes.flatMap((box, i) => (box.checked ? [i] : []))),
      }));
      return element("fieldset", {}, element("legend", {}, name), ...labels.map((text, code) => element("label", {}, boxes[code], ` ${text}`)));
    });
    const chosen = () => Object.keys(this.where).join(", ");
    this.summary = element("summary", {}, "Filter");
    this.said = () => { this.summary.textContent = chosen() ? `Filter: ${chosen()}` : "Filter"; };
    this.said();
    document.getElementById("filters").append(element("details", { class: "filter" }, this.summary, element("div", { class: "menu" }, ...menus)));
  }

  filter(name, codes) {
    delete this.where[name];
    if (codes.length < this.drill.data.keys[name].labels.length) this.where[name] = new Set(codes);
    remember("where", Object.entries(this.where).map(([key, some]) => `${key}:${[...some].join(",")}`).join(";"));
    this.said();
    this.show();
  }
}

// What a row of an answer says: both numbers, and the verdict.
function wordsOf(row) {
  const numbers = [...row.querySelectorAll(".size")].map((cell) => `${cell.dataset.label} ${cell.textContent}`);
  return numbers.length ? `${numbers.join(", ")}: ${row.querySelector(".verdict").textContent.slice(2)}` : "";
}
