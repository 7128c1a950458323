// The first answer: one device against another as a headline, a heat map of ratios, prices and environments.

// The sign and the CSS class of each verdict; colour alone would not reach every reader.
const VERDICTS = {
  faster: ["▲", "better"], slower: ["▼", "worse"], less: ["▼", "better"], more: ["▲", "worse"], same: ["=", "same"],
  "host-limited": ["h", "unsure"], ambiguous: ["?", "unsure"], failed: ["✕", "worse"], fixed: ["✓", "better"],
  "no result": ["", "unsure"],
};
const ROWS_OF_HEAT_MAP = 24;
const DEEPEST = Math.log(1.6);

class Devices {
  constructor(data, openCell) {
    this.data = data;
    this.openCell = openCell;
    this.prices = data.sides.map((side, i) => Number.parseFloat(state.get(`price${i}`)) || side.price);
    const asked = (name) => data.sides.findIndex((side) => side.name === state.get(name));
    const fits = (one, other) => data.pairs.find((pair) => pair.baseline === one && pair.contrast === other);
    this.pair = fits(asked("baseline"), asked("contrast")) ?? data.pairs.find((pair) => pair.cells) ?? data.pairs[0];
    this.fits = fits;
    this.show();
  }

  side = (index) => this.data.sides[index].name;

  choose(baseline, contrast) {
    const { pairs } = this.data;
    this.pair = this.fits(baseline, contrast) ?? pairs.find((pair) => pair.baseline === baseline) ?? this.pair;
    remember("baseline", this.side(this.pair.baseline));
    remember("contrast", this.side(this.pair.contrast));
    this.show();
  }

  show() {
    const { pair } = this;
    const focused = document.activeElement?.id;
    document.getElementById("answer").textContent = pair.headline;
    document.getElementById("answer-details").replaceChildren(...pair.details.map((text) => element("span", {}, ...withCode(text), " ")));
    document.getElementById("pick").replaceChildren(...this.pickers());
    document.getElementById("heat").replaceChildren(...(pair.cells ? this.heatMaps() : []));
    document.getElementById("prices").replaceChildren(...this.priceTable());
    document.getElementById("differences").replaceChildren(...this.environment());
    if (focused) document.getElementById(focused)?.focus();
  }

  pickers() {
    const { sides, pairs } = this.data;
    const { baseline, contrast } = this.pair;
    const select = (id, text, indices, chosen, choose) => element(
      "label", {}, `${text} `,
      element("select", { id, onchange: (event) => choose(Number(event.target.value)) },
        ...indices.map((i) => element("option", { value: i, selected: i === chosen }, sides[i].name))));
    const baselines = [...new Set(pairs.map((pair) => pair.baseline))];
    const contrasts = pairs.filter((pair) => pair.baseline === baseline).map((pair) => pair.contrast);
    return [
      select("pick-contrast", "device", contrasts, contrast, (chosen) => this.choose(baseline, chosen)),
      select("pick-baseline", "baseline", baselines, baseline, (chosen) => this.choose(chosen, chosen === contrast ? baseline : contrast)),
    ];
  }

  // One table for each value, with the key of most numbers as columns.
  heatMaps() {
    const { cells } = this.pair;
    const { value, ...keys } = cells.keys;
    const names = Object.keys(keys);
    const column = columnKey(keys);
    const rows = names.filter((name) => name !== column);
    const maps = value.labels.map((label, code) => {
      const at = cells.verdict.map((_, i) => i).filter((i) => value.codes[i] === code);
      return at.length ? this.heatMap(label, at, rows, column) : null;
    });
    const said = Object.entries(this.pair.counts).map(([word, n]) => element(
      "span", { class: `key ${VERDICTS[word][1]}` }, `${VERDICTS[word][0]} ${n} ${word}`));
    const shows = cells.unit === "s"
      ? `How many times as fast ${this.side(this.pair.contrast)} is as ${this.side(this.pair.baseline)}: the inverse of the ratio of times. Select a cell for its samples.`
      : "Ratio to the baseline. Select a cell for its samples.";
    return [
      element("p", { class: "counts" }, ...said),
      element("p", { class: "muted" }, shows, cells.conditions.length ? element("span", { class: "same-in-all" }, ` ${cells.conditions.join(", ")}`) : null),
      element("div", { class: "maps" }, ...maps),
    ];
  }

  heatMap(label, at, rows, column) {
    const { cells } = this.pair;
    const code = (name, i) => cells.keys[name].codes[i];
    const text = (name, i) => cells.keys[name].labels[code(name, i)];
    const columns = column ? [...new Set(at.map((i) => code(column, i)))].sort((a, b) => a - b) : [null];
    const lines = new Map();
    for (const i of at) {
      const key = rows.map((name) => code(name, i));
      if (!lines.has(key.join())) lines.set(key.join(), { key, first: i, cells: new Map() });
      lines.get(key.join()).cells.set(column ? code(column, i) : null, i);
    }
    const ordered = [...lines.values()].sort((a, b) => compare(a.key, b.key));
    const body = ordered.map((line, n) => {
      const before = ordered[n - 1]?.key;
      const heads = rows.map((name, level) => element(
        "th", { scope: "row", class: before && line.key.slice(0, level + 1).every((one, j) => one === before[j]) ? "again" : null },
        text(name, line.first)));
      return element(
        "tr", { class: n < ROWS_OF_HEAT_MAP ? null : "beyond" }, ...heads,
        ...columns.map((one) => this.heatCell(line.cells.get(one), label)));
    });
    const table = element(
      "table", { class: "heat" },
      element("caption", {}, label + (column ? `, by ${column}` : "")),
      element("thead", {}, element(
        "tr", {}, ...rows.map((name) => element("th", { scope: "col", class: "row-name" }, name)),
        ...columns.map((one) => element("th", { scope: "col" }, column ? cells.keys[column].labels[one] : "ratio")))),
      element("tbody", {}, ...body));
    nameCells(table);
    makeSortable(table);
    walkable(table);
    const more = ordered.length > ROWS_OF_HEAT_MAP ? element(
      "button", { type: "button", class: "more", onclick: (event) => { table.classList.add("all"); event.currentTarget.remove(); } },
      `Show all ${ordered.length} rows`) : null;
    return element(
      "div", { class: "map" }, element("div", { class: "scroll", role: "region", "aria-label": `heat map of ${label}` }, table), more,
      tableTools(label, () => table, () => csvOfTable(table)));
  }

  heatCell(i, label) {
    if (i == null) return element("td", { class: "nothing" }, NO_VALUE);
    const { cells } = this.pair;
    const word = this.data.verdicts[cells.verdict[i]];
    const [sign, kind] = VERDICTS[word];
    const ratio = cells.ratio[i];
    if (ratio == null) return element("td", { class: `ratio ${kind}` }, `${sign} ${word}`);
    const times = (value) => (cells.unit === "s" ? 1 / value : value);
    const depth = Math.min(1, Math.abs(Math.log(ratio)) / DEEPEST);
    const ends = [cells.ratio_low[i], cells.ratio_high[i]].filter((end) => end != null).map(times).sort((a, b) => a - b);
    const interval = ends.length ? ` [${ends.map(threeDigits).join(", ")}]` : "";
    const flags = cells.flags[cells.flag[i]];
    const cell = element(
      "td", { class: `ratio ${kind}`, style: `--depth: ${Math.round(15 + 40 * depth)}%`, title: `${word}${interval}${flags.length ? `; ${flags.join(", ")}` : ""}` },
      element("span", { class: "sign" }, sign), ` ${threeDigits(times(ratio))}×`);
    opens(cell, () => this.openCell(this.pair, i, label));
    return cell;
  }

  // Prices per hour, which the reader can change, and what each device costs for the same work.
  priceTable() {
    const { sides, pairs } = this.data;
    const { baseline } = this.pair;
    const speed = (i) => (i === baseline ? { mean: 1 } : pairs.find((pair) => pair.baseline === baseline && pair.contrast === i)?.speed);
    const priced = sides.map((_, i) => i).filter((i) => speed(i));
    if (priced.length < 2) return [];
    const base = this.prices[baseline];
    const lines = priced.map((i) => {
      const { mean } = speed(i);
      const price = this.prices[i];
      const field = element("input", {
        id: `price-${i}`, type: "number", min: "0", step: "0.01", value: price ?? "", placeholder: "$/h",
        "aria-label": `dollars per hour of ${sides[i].name}`,
        onchange: (event) => {
          this.prices[i] = Number.parseFloat(event.target.value) || null;
          remember(`price${i}`, this.prices[i]);
          this.show();
        },
      });
      const known = price && base;
      return element(
        "tr", {}, element("th", { scope: "row" }, sides[i].name), element("td", {}, field),
        element("td", {}, `${threeDigits(mean)}×`),
        element("td", {}, known ? `${threeDigits(price / base / mean)}×` : NO_VALUE),
        element("td", {}, i === baseline ? "baseline" : base ? `$${threeDigits(base * mean)}/h` : NO_VALUE));
    });
    const table = element(
      "table", { class: "words prices" },
      element("thead", {}, element("tr", {}, ...["device", "price ($/h)", "speed", "relative cost", "break-even"].map(
        (name) => element("th", { scope: "col" }, name)))),
      element("tbody", {}, ...lines));
    nameCells(table);
    return [
      element("h3", {}, "Price against performance"),
      element("div", { class: "scroll", role: "region", "aria-label": "prices" }, table),
      element("p", { class: "note" }, "Enter what you pay per hour. Speed: the geometric mean over cells, by the clock of the headline. Relative cost: of the same work. Break-even: the price at which it costs as much as on the baseline."),
    ];
  }

  environment() {
    const { environment, baseline, contrast } = this.pair;
    if (!environment.length) return [element("h3", {}, "Environment"), element("p", { class: "note" }, "No recorded field of the environment differs.")];
    const shown = (field, text) => (field === "device_memory" ? text.replace(/\d{6,}/g, (bytes) => `${threeDigits(bytes / 2 ** 30)} GiB`) : text);
    const table = element(
      "table", { class: "words differences" },
      element("thead", {}, element("tr", {}, ...["field", this.side(baseline), this.side(contrast)].map((name) => element("th", { scope: "col" }, name)))),
      element("tbody", {}, ...environment.map(([field, one, other]) => element(
        "tr", {}, element("th", { scope: "row" }, field), element("td", {}, shown(field, one)), element("td", {}, shown(field, other))))));
    nameCells(table);
    return [
      element("h3", {}, "What differs in the environment"),
      element("div", { class: "scroll", role: "region", "aria-label": "differences of the environment" }, table),
    ];
  }
}

// What stands between backticks is code.
const withCode = (text) => text.split("`").map((part, i) => (i % 2 ? element("code", {}, part) : part));

// The key for the columns of a heat map: of those with two to ten labels, numbers first, then the one with most.
function columnKey(keys) {
  const isNumber = (name) => keys[name].labels.every((text) => !Number.isNaN(Number(text)));
  const used = (name) => new Set(keys[name].codes).size;
  const fit = Object.keys(keys).filter((name) => used(name) >= 2 && used(name) <= 10);
  return fit.sort((a, b) => isNumber(b) - isNumber(a) || used(b) - used(a))[0] ?? null;
}

const threeDigits = (value) => (Math.abs(value) >= 1000 ? value.toFixed(0) : Number(value).toPrecision(3));
