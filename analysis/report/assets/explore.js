// The reader's choice - values, rows, columns, filters, axes - and what is drawn for it.

class Explorer {
  constructor(results) {
    const { layout } = results.data;
    this.results = results;
    this.rows = layout.rows;
    this.cols = layout.cols;
    this.values = layout.values;
    this.where = {};
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
    this.showControls();
    this.showChart(table);
    this.showMatrix(table);
  }

  showControls() {
    const keys = this.results.varying();
    const free = keys.filter((name) => !this.rows.includes(name) && !this.cols.includes(name));
    const rest = Object.keys(this.results.data.keys).filter((name) => !keys.includes(name));
    const lists = [
      this.chips("values", "Values", Object.keys(this.results.data.values).filter((name) => !this.values.includes(name))),
      this.chips("rows", "Rows", free, rest),
      this.chips("cols", "Columns", free, rest),
    ];
    document.getElementById("layout").replaceChildren(...lists);
    if (!this.filters) {
      const filters = this.results.worthFiltering();
      this.filters = new Map(filters.map((name) => [name, this.filter(name)]));
      document.getElementById("filters").replaceChildren(...[...this.filters.values()].map(({ box }) => box));
    }
    for (const { update } of this.filters.values()) update();
  }

  chips(part, title, free, seldom = []) {
    const chosen = this[part];
    const chip = (name, i) => element(
      "button", {
        type: "button", class: "chip", id: `${part}-${i}`, "aria-label": `remove ${name} from ${title}`,
        onclick: () => this.change({ [part]: chosen.filter((other) => other !== name) }),
      }, name, element("span", { "aria-hidden": "true" }, " ×"));
    const option = (name) => element("option", { value: name }, name);
    const add = element(
      "select", {
        id: `add-${part}`, "aria-label": `add to ${title}`,
        onchange: (event) => this.change({ [part]: [...chosen, event.target.value] }),
      },
      element("option", { value: "" }, "add…"), ...free.map(option),
      seldom.length ? element("optgroup", { label: "the same in all results" },
        ...seldom.filter((name) => !this.rows.includes(name) && !this.cols.includes(name)).map(option)) : null);
    return element("fieldset", {}, element("legend", {}, title), ...chosen.map(chip), add);
  }

  filter(name) {
    const { labels } = this.results.data.keys[name];
    const summary = element("summary", {});
    const boxes = labels.map((text, code) => {
      const box = element("input", { type: "checkbox", onchange: () => this.choose(name, boxes) });
      return { code, box, line: element("label", {}, box, ` ${text}`) };
    });
    const all = element("button", { type: "button", onclick: () => this.choose(name, []) }, "all");
    const menu = element("div", { class: "menu" }, ...boxes.map(({ line }) => line), all);
    const box = element("details", { class: "filter", name: "filter" }, summary, menu);
    const update = () => {
      const chosen = this.where[name];
      boxes.forEach(({ code, box: one }) => { one.checked = !chosen || chosen.has(code); });
      const words = chosen ? labels.filter((_, code) => chosen.has(code)) : [];
      const said = words.length > 2 ? `${words.length} of ${labels.length}` : words.join(", ");
      summary.replaceChildren(name, chosen ? element("b", {}, ` ${said || "none"}`) : "");
      box.classList.toggle("active", Boolean(chosen));
    };
    return { box, update };
  }

  choose(name, boxes) {
    const codes = new Set(boxes.filter(({ box }) => box.checked).map(({ code }) => code));
    const { [name]: _, ...where } = this.where;
    if (boxes.length && codes.size < boxes.length) where[name] = codes;
    this.change({ where });
  }

  showChart(table) {
    const target = document.getElementById("chart");
    const note = document.getElementById("chart-note");
    const keys = [...new Set([...table.rows, ...table.cols])];
    const possible = possibleX(this.results, keys, table.cells);
    const x = possible.includes(this.x) ? this.x : possible[0] ?? keys[0];
    if (!x || !table.cells.some((cell) => !Number.isNaN(cell.median))) {
      Plotly.purge(target);
      drawn.delete(target);
      note.textContent = "There is no number to draw for this choice.";
      return;
    }
    const others = possible.filter((name) => name !== x);
    const colour = others.includes(this.colour) ? this.colour : defaultColour(this.results, others, table);
    const chosen = seriesOf(this.results, table, { x, colour });
    const traces = tracesOf(this.results, table, chosen, x);
    const { numbers, labels } = this.results.data.keys[x];
    const used = [...new Set(table.cells.map((cell) => this.results.code(x, cell.result)))].sort((a, b) => a - b);
    const valueNames = table.values.filter((_, i) => table.units[i] === table.units[0]);
    draw(target, traces, {
      showlegend: traces.length > 1,
      xaxis: numbers
        ? { title: { text: plain(x) }, type: this.logX ? "log" : "linear", ...ticksAt(used.map((code) => numbers[code])) }
        : { title: { text: plain(x) }, type: "category", categoryarray: used.map((code) => plain(labels[code])) },
      yaxis: {
        title: { text: plain(`${valueNames.length === 1 ? valueNames[0] : "value"} (${chosen.unit.name})`) },
        type: this.logY ? "log" : "linear", ...(this.logY ? { dtick: "D2", tickformat: "~r" } : { rangemode: "tozero" }),
      },
    });
    const failures = table.cells.filter((cell) => Number.isNaN(cell.median)).length;
    note.textContent = [
      failures && `${failures} results have no number and no point; the table says why.`,
      chosen.left && `The first ${chosen.series.length} of ${chosen.series.length + chosen.left} lines are drawn; choose fewer with the filters.`,
      chosen.otherUnits && `Only values in the unit of ${table.values[0]} are drawn.`,
    ].filter(Boolean).join(" ");
    this.showAxisControls(possible, others, x, colour, Boolean(numbers));
  }

  showAxisControls(possible, others, x, colour, numeric) {
    const select = (id, text, names, chosen, onchange) => element(
      "label", {}, `${text} `,
      element("select", { id, onchange: (event) => onchange(event.target.value) },
        ...names.map((name) => element("option", { value: name, selected: name === chosen }, name))));
    const box = (id, text, checked, part) => element(
      "label", {}, element("input", { id, type: "checkbox", checked, onchange: (event) => this.change({ [part]: event.target.checked }) }),
      ` ${text}`);
    document.getElementById("axes").replaceChildren(
      ...(possible.length ? [select("x-axis", "along", possible, x, (name) => this.change({ x: name }))] : []),
      ...(others.length ? [select("colour", "colour by", others, colour, (name) => this.change({ colour: name }))] : []),
      ...(numeric ? [box("log-x", "log x", this.logX, "logX")] : []),
      box("log-y", "log y", this.logY, "logY"),
    );
  }

  showMatrix(table) {
    const target = document.getElementById("matrix");
    const problem = this.problem(table);
    document.getElementById("download").disabled = Boolean(problem);
    document.getElementById("command").textContent = problem ? "" : this.command();
    const options = { allRows: this.allRows, showAll: () => this.change({ allRows: true }) };
    target.replaceChildren(...(problem ? [problem] : matrixOf(table, this.results, options)));
  }

  // What keeps the table from being drawn, and buttons that help.
  problem(table) {
    if (!this.values.length || !this.rows.length) {
      return element("p", { class: "problem" }, `Choose at least one field for the ${this.rows.length ? "values" : "rows"}.`);
    }
    if (!table.cells.length) return element("p", { class: "problem" }, "No result is left for this choice.");
    if (!table.crowded.length) return null;
    const button = (text, choice) => element("button", { type: "button", onclick: () => this.change(choice) }, text);
    const names = table.crowded.join(" and ");
    return element(
      "div", { class: "problem" },
      element("p", {}, `A cell would hold several results, and nothing is averaged here. They differ in ${names}.`),
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

// Few colours that mean something rather than many: the last key with no more values than there are colours.
function defaultColour(results, keys, table) {
  const few = keys.filter((name) => new Set(table.cells.map((cell) => results.code(name, cell.result))).size <= COLOURS.length);
  const columns = few.filter((name) => table.cols.includes(name));
  return (columns.length ? columns : few)[0] ?? keys[0];
}

const ticksAt = (numbers) => (numbers.length <= 12 ? { tickvals: numbers, ticktext: numbers.map(String) } : {});
