// The reader's selection (values, rows, columns, filters, axes), and the chart and table drawn for it.

class Explorer {
  constructor(results, openCell) {
    const { layout, views } = results.data;
    this.results = results;
    this.openCell = openCell;
    Object.assign(this, { rows: layout.rows, cols: layout.cols, values: layout.values, where: {} });
    Object.assign(this, { drawn: null, x: null, colour: null, facet: null, logX: true, logY: true });
    const many = views.length > 1;
    this.views = views.map(({ workload, question, ...view }) => ({
      question, ...view, where: many ? { workload: new Set([results.data.keys.workload.labels.indexOf(workload)]) } : {},
    }));
    if (many) Object.assign(this, this.views[0], { question: undefined });
    this.recall();
  }

  change(choice) {
    const focused = document.activeElement?.id;
    Object.assign(this, choice);
    this.keep();
    this.show();
    document.getElementById(focused)?.focus();
  }

  show() {
    const table = this.results.pivot(this);
    this.table = table;
    showViews(this);
    showLayout(this);
    showFilters(this);
    this.showChart(table);
    this.showMatrix(table);
  }

  // The view of the address's fragment, if its names are those of this page.
  recall() {
    const { keys, values } = this.results.data;
    const list = (name, known) => {
      const words = state.get(name)?.split(",").filter((word) => known[word]);
      if (words?.length) this[name] = words;
    };
    list("values", values);
    list("rows", keys);
    list("cols", keys);
    if (state.get("cols") === "none") this.cols = [];
    if (state.has("where")) this.where = {};
    for (const part of (state.get("where") ?? "").split(";")) {
      const [name, codes] = part.split(":");
      const known = codes?.split(",").map(Number).filter((code) => keys[name]?.labels[code] != null);
      if (known?.length) this.where[name] = new Set(known);
    }
    for (const name of ["drawn", "x", "colour"]) this[name] = state.get(name) ?? this[name];
    if (state.has("facet")) this.facet = state.get("facet").split(",").filter((name) => keys[name]);
    for (const name of ["logX", "logY"]) if (state.has(name)) this[name] = state.get(name) !== "0";
  }

  keep() {
    remember("values", this.values.join(","));
    remember("rows", this.rows.join(","));
    remember("cols", this.cols.join(",") || "none");
    const where = Object.entries(this.where).map(([name, codes]) => `${name}:${[...codes].join(",")}`).join(";");
    remember("where", where || (this.views.length > 1 ? "-" : null));
    for (const name of ["drawn", "x", "colour"]) remember(name, this[name]);
    remember("facet", this.facet && (this.facet.join(",") || "-"));
    for (const name of ["logX", "logY"]) remember(name, this[name] ? null : "0");
  }

  showChart(table) {
    const target = document.getElementById("chart");
    const note = document.getElementById("chart-note");
    const { results } = this;
    const value = table.values.includes(this.drawn) ? this.drawn : table.values[0];
    const ofValue = table.cells.filter((cell) => table.values[cell.valueIndex] === value);
    const cells = ofValue.filter((cell) => !Number.isNaN(cell.median));
    const isMemory = cells.length && table.units[cells[0].valueIndex] === "B";
    const asLimits = isMemory && results.data.keys.device_memory.numbers
      ? ofValue.filter((cell) => cell.status === "oom" && results.data.keys.device_memory.numbers[results.code("device_memory", cell.result)])
      : [];
    const shown = [...cells, ...asLimits];
    const keys = [...new Set([...table.rows, ...table.cols])];
    const possible = possibleX(results, keys, shown);
    const x = possible.includes(this.x) ? this.x : possible[0];
    const figure = target.closest("figure");
    figure.classList.toggle("empty", !x || !cells.length);
    if (!x || !cells.length) {
      Plotly.purge(target);
      drawn.delete(target);
      note.textContent = cells.length
        ? "There is one result, and so no chart: the table below has its number."
        : "There are no numbers to draw for this selection.";
      showAxisControls(this, { values: table.values, value, possible: [], others: [] });
      return;
    }
    const others = possible.filter((name) => name !== x);
    const numeric = isNumeric(results, x, shown);
    const chosen = seriesOf(results, table, shown, { x, colour: this.colour, facet: this.facet });
    const { numbers, labels } = results.data.keys[x];
    const used = [...new Set(shown.map((cell) => results.code(x, cell.result)))].sort((a, b) => a - b);
    const logX = numeric && this.logX && used.every((code) => numbers[code] > 0);
    draw(target, (width) => {
      const lines = tracesOf(results, table, chosen, x, numeric);
      const limits = limitsOf(results, table, chosen, x, numeric);
      this.points = [...lines.points, ...limits.points];
      const traces = [...lines.traces, ...limits.traces];
      const across = chosen.panels.length === 1 ? 1 : Math.min(chosen.panels.length, width < 560 ? 1 : width < 900 ? 2 : chosen.panels.length === 4 ? 2 : 3);
      const legend = chosen.inside.length && !legendIsBelow(traces, width) ? legendWidth(traces) : 0;
      const room = (width - 100 - legend) / across;
      const yAxis = yAxisOf(traces.flatMap(extentOf), this.logY);
      const xAxis = numeric
        ? { type: logX ? "log" : "linear", ...ticksAt(results, x, used.map((code) => numbers[code]), logX, room) }
        : {
          type: "linear", range: [-0.5, used.length - 0.5], showgrid: false, zeroline: false, tickvals: [...used.keys()],
          ticktext: used.map((code) => wrapped(labels[code], room / used.length - 4, { size: 12, most: 1 })),
        };
      return {
        traces,
        layout: {
          title: { text: titleOf(value, table.conditions, width) },
          margin: { l: 56, r: 12, t: 94, b: 48 },
          showlegend: chosen.inside.length > 0, legend: { title: { text: plain(chosen.inside.join(", ")) } }, shapes: limits.shapes,
          ...panelAxes(chosen.panels, across, { xAxis, yAxis, room, xTitle: x, yTitle: `${value} (${chosen.unit.name})` }),
        },
      };
    });
    target.removeAllListeners?.("plotly_click");
    target.on("plotly_click", ({ points: [point] }) => {
      const cell = this.points[point.curveNumber]?.[point.pointIndex];
      if (cell) this.openCell(cell, value);
    });
    const off = this.logY ? cells.filter((cell) => cell.median <= 0).length : 0;
    const offX = numeric && this.logX && !logX;
    const undrawn = ofValue.length - shown.length;
    note.textContent = [
      off && `${off} ${off === 1 ? "result is" : "results are"} 0 or less, which a logarithmic axis cannot show: untick log y, or see the table.`,
      offX && `${x} is 0 or less in some results, so its axis is linear.`,
      asLimits.length && `${asLimits.length} ${asLimits.length === 1 ? "result" : "results"} ran out of memory, drawn as crosses at the memory of their device.`,
      undrawn && `${undrawn} ${undrawn === 1 ? "result has" : "results have"} no number and ${undrawn === 1 ? "is" : "are"} not drawn; the table says why.`,
      chosen.single && `${chosen.single} ${chosen.single === 1 ? "result is" : "results are"} alone along ${x} and not drawn: see the table, or choose another x axis.`,
      chosen.left && `Only the first ${chosen.series.length} of ${chosen.series.length + chosen.left} lines are drawn; narrow the selection with the filters.`,
    ].filter(Boolean).join(" ");
    showAxisControls(this, { values: table.values, value, possible, others, x, colour: chosen.shade, facet: chosen.facet, numeric });
  }

  showMatrix(table) {
    const target = document.getElementById("matrix");
    const problem = this.problem(table);
    document.getElementById("download").disabled = Boolean(problem);
    document.getElementById("command").textContent = problem ? "" : this.command();
    const open = (cell) => this.openCell(cell, table.values[cell.valueIndex]);
    target.replaceChildren(...(problem ? [problem] : matrixOf(table, this.results, open)));
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
    const words = ["lmsweep", "table", shellQuoted(this.results.data.store), "--rows", this.rows.join(",")];
    if (this.cols.length) words.push("--cols", this.cols.join(","));
    for (const name of this.values) words.push("--value", name);
    for (const [name, codes] of Object.entries(this.where)) {
      const labels = [...codes].sort((a, b) => a - b).map((code) => this.results.label(name, code));
      words.push("--where", shellQuoted(`${name}=${labels.join(",")}`));
    }
    return words.join(" ");
  }
}

// What the y axis must show of a trace: its points and their intervals.
const extentOf = ({ y, error_y: ends }) => y.flatMap((value, i) => [value, ...(ends ? [value - ends.arrayminus[i], value + ends.array[i]] : [])]);

const ticksAt = (results, key, numbers, isLog, room) => {
  const text = (number) => {
    const unit = key.endsWith("_bytes") ? chooseUnit(results.data.units, "B", [number]) : { size: 1 };
    return [number / unit.size, unit.name].filter(Boolean).join(" ");
  };
  if (numbers.length > 12) return {};
  const at = (number) => (isLog ? Math.log(number) : number);
  const [first, last] = [at(numbers[0]), at(numbers.at(-1))];
  const pixels = (number) => (room * 0.86 * (at(number) - first)) / (last - first || 1);
  let free = -Infinity;
  const ticktext = numbers.map((number) => {
    const words = text(number);
    const half = widthOf(words) / 2 + 3;
    if (pixels(number) - half < free) return "";
    free = pixels(number) + half;
    return words;
  });
  return { tickvals: numbers, ticktext };
};

// The value, and below it what all results have in common, as far as two lines hold it.
function titleOf(value, conditions, width) {
  const lines = [""];
  for (const text of conditions.map((one) => one.join(" "))) {
    if (lines.at(-1) && lines.at(-1).length + text.length > width / 6.4) lines.push("");
    lines[lines.length - 1] += `${lines.at(-1) ? ", " : ""}${text}`;
  }
  const said = lines.slice(0, 2).map(plain).join("<br>") + (lines.length > 2 ? ", ..." : "");
  return `<b>${plain(value)}</b>${said ? `<br><span style="font-size:11px">${said}</span>` : ""}`;
}

// The axes of each panel, all of the same scale, and the panels' names.
function panelAxes(panels, across, { xAxis, yAxis, room, xTitle, yTitle }) {
  if (panels.length === 1) {
    return { xaxis: { ...xAxis, title: { text: plain(xTitle) } }, yaxis: { ...yAxis, title: { text: plain(yTitle) } } };
  }
  const down = Math.ceil(panels.length / across);
  const [gapX, gapY] = [across === 1 ? 0 : 0.05, down === 1 ? 0 : Math.min(0.16, 0.3 / down)];
  const [width, height] = [(1 - gapX * (across - 1)) / across, (1 - gapY * (down - 1)) / down];
  const layout = { annotations: [], height: 150 + 210 * down };
  panels.forEach(({ name, index }) => {
    const [row, column] = [Math.floor(index / across), index % across];
    const left = column * (width + gapX);
    const top = 1 - row * (height + gapY);
    const lowest = index + across >= panels.length;
    layout[`xaxis${index ? index + 1 : ""}`] = {
      ...xAxis, domain: [left, left + width], anchor: axisNumber("y", index), ...(index && { matches: "x" }),
      title: { text: lowest ? plain(xTitle) : "" }, showticklabels: lowest,
    };
    layout[`yaxis${index ? index + 1 : ""}`] = {
      ...yAxis, domain: [Math.max(0, top - height), top], anchor: axisNumber("x", index), ...(index && { matches: "y" }),
      title: { text: column === 0 ? plain(yTitle) : "", font: { size: 12 } }, showticklabels: column === 0,
    };
    layout.annotations.push({
      text: wrapped(name, room - 8), align: "left", x: left, xref: "paper", xanchor: "left", y: top, yref: "paper", yanchor: "bottom", showarrow: false, font: { size: 12 },
    });
  });
  return layout;
}
