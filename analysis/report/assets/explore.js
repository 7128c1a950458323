// The reader's selection (values, rows, columns, filters, axes), and the chart and table drawn for it.

class Explorer {
  constructor(results) {
    const { layout } = results.data;
    this.results = results;
    this.rows = layout.rows;
    this.cols = layout.cols;
    this.values = layout.values;
    this.where = {};
    this.drawn = null;
    this.x = null;
    this.colour = null;
    this.logX = true;
    this.logY = true;
    this.allRows = false;
  }

  change(choice) {
    const focused = document.activeElement?.id;
    Object.assign(this, { allRows: false }, choice);
    this.show();
    document.getElementById(focused)?.focus();
  }

  show() {
    const table = this.results.pivot(this);
    this.table = table;
    showLayout(this);
    showFilters(this);
    this.showChart(table);
    this.showMatrix(table);
  }

  showChart(table) {
    const target = document.getElementById("chart");
    const note = document.getElementById("chart-note");
    const value = table.values.includes(this.drawn) ? this.drawn : table.values[0];
    const ofValue = table.cells.filter((cell) => table.values[cell.valueIndex] === value);
    const cells = ofValue.filter((cell) => !Number.isNaN(cell.median));
    const keys = [...new Set([...table.rows, ...table.cols])];
    const possible = possibleX(this.results, keys, cells);
    const x = possible.includes(this.x) ? this.x : possible[0] ?? keys[0];
    if (!x || !cells.length) {
      Plotly.purge(target);
      drawn.delete(target);
      note.textContent = "There are no numbers to draw for this selection.";
      showAxisControls(this, { values: table.values, value, possible: [], others: [] });
      return;
    }
    const others = possible.filter((name) => name !== x);
    const colour = others.includes(this.colour) ? this.colour : defaultColour(this.results, others, cells);
    const numeric = isNumeric(this.results, x, cells);
    const chosen = seriesOf(this.results, table, cells, { x, colour });
    const { numbers, labels } = this.results.data.keys[x];
    const used = [...new Set(cells.map((cell) => this.results.code(x, cell.result)))].sort((a, b) => a - b);
    const traces = tracesOf(this.results, table, chosen, x, numeric);
    draw(target, traces, {
      showlegend: traces.length > 1, legend: { title: { text: plain(chosen.told.join(", ")) } },
      xaxis: numeric
        ? { title: { text: plain(x) }, type: this.logX ? "log" : "linear", ...ticksAt(used.map((code) => numbers[code])) }
        : { title: { text: plain(x) }, type: "category", categoryarray: used.map((code) => plain(labels[code])) },
      yaxis: {
        title: { text: plain(`${value} (${chosen.unit.name})`) },
        type: this.logY ? "log" : "linear", ...(this.logY ? { dtick: "D2", tickformat: "~r" } : { rangemode: "tozero" }),
      },
    });
    const off = this.logY ? cells.filter((cell) => cell.median <= 0).length : 0;
    note.textContent = [
      off && `${off} ${off === 1 ? "result is" : "results are"} 0 or less, which a logarithmic axis cannot show: untick log y, or see the table.`,
      cells.length < ofValue.length && `${ofValue.length - cells.length} results have no number and are not drawn; the table tells why.`,
      chosen.left && `Only the first ${chosen.series.length} of ${chosen.series.length + chosen.left} lines are drawn; narrow the selection with the filters.`,
    ].filter(Boolean).join(" ");
    showAxisControls(this, { values: table.values, value, possible, others, x, colour, numeric });
  }

  showMatrix(table) {
    const target = document.getElementById("matrix");
    const problem = this.problem(table);
    document.getElementById("download").disabled = Boolean(problem);
    document.getElementById("command").textContent = problem ? "" : this.command();
    const options = { allRows: this.allRows, showAll: () => this.change({ allRows: true }) };
    target.replaceChildren(...(problem ? [problem] : matrixOf(table, this.results, options)));
  }

  // Why the table cannot be drawn, with buttons that resolve it; null if it can.
  problem(table) {
    if (!this.values.length || !this.rows.length) {
      return element("p", { class: "problem" }, `Choose at least one field for the ${this.rows.length ? "values" : "rows"}.`);
    }
    if (!table.cells.length) return element("p", { class: "problem" }, "No results match this selection.");
    if (!table.crowded.length) return null;
    const button = (text, choice) => element("button", { type: "button", onclick: () => this.change(choice) }, text);
    const names = table.crowded.join(" and ");
    return element(
      "div", { class: "problem" },
      element("p", {}, `Some cells would hold several results, and results are never averaged. They differ in ${names}.`),
      button(`add ${names} to rows`, { rows: [...this.rows, ...table.crowded] }), " ",
      button(`add ${names} to columns`, { cols: [...this.cols, ...table.crowded] }));
  }

  // The command that prints the same table.
  command() {
    const quote = (text) => (/^[\w.,:=+@%/-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);
    const words = ["lmsweep", "table", quote(this.results.data.store), "--rows", this.rows.join(",")];
    if (this.cols.length) words.push("--cols", this.cols.join(","));
    for (const name of this.values) words.push("--value", name);
    for (const [name, codes] of Object.entries(this.where)) {
      const labels = [...codes].sort((a, b) => a - b).map((code) => this.results.label(name, code));
      words.push("--where", quote(`${name}=${labels.join(",")}`));
    }
    return words.join(" ");
  }
}

// The key with the most values among those for which there are enough colours.
function defaultColour(results, keys, cells) {
  const count = (name) => new Set(cells.map((cell) => results.code(name, cell.result))).size;
  const wordsFirst = (a, b) => isNumeric(results, a, cells) - isNumeric(results, b, cells);
  const few = keys.filter((name) => count(name) <= COLOURS.length).sort((a, b) => count(b) - count(a) || wordsFirst(a, b));
  return few[0] ?? keys[0];
}

const ticksAt = (numbers) => (numbers.length <= 12 ? { tickvals: numbers, ticktext: numbers.map(String) } : {});
