// The first answer: one side against another as a headline, a heat map of ratios, prices, environments, and choices.

// The sign and the CSS class of each verdict; colour alone would not reach every reader.
const VERDICTS = {
  faster: ["▲", "better"], slower: ["▼", "worse"], less: ["▼", "better"], more: ["▲", "worse"], same: ["=", "same"],
  "host-limited": ["h", "unsure"], ambiguous: ["?", "unsure"], failed: ["✕", "worse"], fixed: ["✓", "better"],
  "no result": ["", "unsure"],
};
const DEVICE = "device_name";
const ROWS_OF_HEAT_MAP = 24;
const DEEPEST = Math.log(1.6);

class Answer {
  constructor(data, openCell) {
    this.data = data;
    this.openCell = openCell;
    this.decoded = new Map();
    this.prices = data.sides.map((side, i) => Number.parseFloat(state.get(`price${i}`)) || side.price);
    const asked = (name) => data.sides.findIndex((side) => side.name === state.get(name) && side.key === state.get("by"));
    const found = this.between(asked("baseline"), asked("contrast"));
    this.pair = found.find((pair) => pair.measure === state.get("measure")) ?? found[0] ?? data.pairs[data.first];
    this.show();
  }

  side = (index) => this.data.sides[index].name;

  key = (pair) => this.data.sides[pair.baseline].key;

  between = (one, other) => this.data.pairs.filter((pair) => pair.baseline === one && pair.contrast === other);

  // The cells of a pair, their columns as arrays of numbers.
  cellsOf(pair) {
    if (!pair.cells) return null;
    if (!this.decoded.has(pair)) {
      const { cells } = pair;
      const numbers = (name) => (cells[name] ? decoded(cells[name], Float32Array) : null);
      const keys = Object.fromEntries(Object.entries(cells.keys).map(
        ([name, { labels, codes }]) => [name, { labels, codes: decoded(codes, Int32Array) }]));
      this.decoded.set(pair, {
        ...cells, keys, verdict: decoded(cells.verdict, Int32Array), flag: decoded(cells.flag, Int32Array),
        results: cells.results.map((codes) => decoded(codes, Int32Array)),
        ...Object.fromEntries(["ratio", "ratio_low", "ratio_high", "wall_ratio", "baseline", "contrast"].map((name) => [name, numbers(name)])),
      });
    }
    return this.decoded.get(pair);
  }

  // Shows the first of these pairs, by the present measure if there is one.
  choose(pairs) {
    this.pair = pairs.find((pair) => pair.measure === this.pair.measure) ?? pairs[0] ?? this.pair;
    remember("by", this.key(this.pair));
    remember("measure", this.pair.measure);
    remember("baseline", this.side(this.pair.baseline));
    remember("contrast", this.side(this.pair.contrast));
    this.show();
  }

  show() {
    const { pair } = this;
    const focused = document.activeElement?.id;
    const ofDevices = this.key(pair) === DEVICE;
    document.getElementById("answer").textContent = pair.headline;
    document.getElementById("answer-details").replaceChildren(...pair.details.map((text) => element("span", {}, ...withCode(text), " ")));
    document.getElementById("pick").replaceChildren(...this.pickers());
    document.getElementById("heat").replaceChildren(...(pair.cells ? this.heatMaps() : this.apart()));
    document.getElementById("prices").replaceChildren(...(ofDevices ? this.priceTable() : []));
    document.getElementById("differences").replaceChildren(...(ofDevices ? this.environment() : []));
    document.getElementById("choices").replaceChildren(...this.choices());
    if (focused) document.getElementById(focused)?.focus();
  }

  pickers() {
    const { sides, pairs } = this.data;
    const { baseline, contrast, measure } = this.pair;
    const key = this.key(this.pair);
    const select = (id, text, options, chosen, choose) => (options.length < 2 && id !== "pick-contrast" && id !== "pick-baseline" ? null : element(
      "label", {}, `${text} `,
      element("select", { id, "aria-label": text ? null : "value", onchange: (event) => choose(event.target.value) },
        ...options.map(([value, words]) => element("option", { value, selected: value === chosen }, words)))));
    const named = (indices) => indices.map((i) => [i, sides[i].name]);
    const ofKey = pairs.filter((pair) => this.key(pair) === key);
    const baselines = [...new Set(ofKey.map((pair) => pair.baseline))];
    const contrasts = [...new Set(ofKey.filter((pair) => pair.baseline === baseline).map((pair) => pair.contrast))];
    const from = (one) => ofKey.filter((pair) => pair.baseline === one);
    const chosenBaseline = (one) => choose(this.between(one, contrast).length ? this.between(one, contrast)
      : this.between(one, baseline).length ? this.between(one, baseline) : from(one));
    const choose = (found) => this.choose(found);
    const keys = [...new Set(pairs.map((pair) => this.key(pair)))].map((name) => [name, name === DEVICE ? "device" : name]);
    const measures = this.between(baseline, contrast).map((pair) => [pair.measure, pair.measure]);
    return [
      select("pick-key", "compare", keys, key, (name) => choose(pairs.filter((pair) => this.key(pair) === name))),
      select("pick-contrast", keys.length > 1 ? "" : keys[0][1], named(contrasts), contrast, (other) => choose(this.between(baseline, Number(other)))),
      select("pick-baseline", keys.length > 1 ? "against" : "baseline", named(baselines), baseline, (one) => chosenBaseline(Number(one))),
      select("pick-measure", "by", measures, measure, (name) => choose(this.between(baseline, contrast).filter((pair) => pair.measure === name))),
    ].filter(Boolean);
  }

  // For each measure, a line for each value of each choice against the first value.
  choices() {
    const { sides, pairs } = this.data;
    const isFirst = (index) => sides.findIndex((side) => side.key === sides[index].key) === index;
    const shown = pairs.filter((pair) => this.key(pair) !== DEVICE && pair.ratio && isFirst(pair.baseline));
    const tables = [...new Set(shown.map((pair) => pair.measure))].map((measure) => {
      const ofMeasure = shown.filter((pair) => pair.measure === measure);
      const isTime = ofMeasure[0].cells.unit === "s";
      const effect = (pair) => Math.abs(Math.log(pair.ratio.mean));
      const largest = (key) => Math.max(...ofMeasure.filter((pair) => this.key(pair) === key).map(effect));
      const ordered = ofMeasure.toSorted((a, b) => largest(this.key(b)) - largest(this.key(a)) || effect(b) - effect(a));
      return forestOf(measure, ordered.map((pair) => ({
        field: this.key(pair), contrast: this.side(pair.contrast), baseline: this.side(pair.baseline),
        ratio: pair.ratio, better: (pair.ratio.mean > 1) === isTime, counts: pair.counts, chosen: pair === this.pair,
        open: () => this.choose([pair]),
      })), isTime);
    });
    if (!tables.length) return [];
    const beside = sides.some(({ store }) => store > 0); // whose choices are not compared
    return [
      element("h3", {}, `What each choice changes${beside ? ` in ${document.querySelector("h1").textContent}` : ""}`),
      ...tables,
      element("p", { class: "note" }, "The geometric mean over the cells that differ in nothing else, and its 95 % interval. Select a number for its cells."),
    ];
  }

  // The fields that keep two sides apart.
  apart() {
    const { apart, baseline, contrast } = this.pair;
    return apart.length ? [element("h3", {}, "What keeps them apart"), this.fields("what keeps them apart", apart, baseline, contrast)] : [];
  }

  // Lines of a field and its values on both sides.
  fields(name, lines, baseline, contrast) {
    const table = element(
      "table", { class: "words differences" },
      element("thead", {}, element("tr", {}, ...["field", this.side(baseline), this.side(contrast)].map((text) => element("th", { scope: "col" }, text)))),
      element("tbody", {}, ...lines.map(([field, ...texts]) => element(
        "tr", {}, element("th", { scope: "row" }, field), ...texts.slice(0, 2).map((text) => element("td", {}, shortened(field, text)))))));
    nameCells(table);
    return element("div", { class: "scroll", role: "region", "aria-label": name }, table);
  }

  // One table for each value, with the key of most numbers as columns.
  heatMaps() {
    const cells = this.cellsOf(this.pair);
    const { value, ...keys } = cells.keys;
    const names = Object.keys(keys);
    const column = columnKey(keys);
    const rows = names.filter((name) => name !== column);
    const maps = value.labels.map((label, code) => {
      const at = [...cells.verdict.keys()].filter((i) => value.codes[i] === code);
      return at.length ? this.heatMap(label, at, rows, column) : null;
    });
    const said = Object.entries(this.pair.counts).map(([word, n]) => element(
      "span", { class: `key ${VERDICTS[word][1]}` }, `${VERDICTS[word][0]} ${n} ${word}`));
    const [contrast, baseline] = [this.side(this.pair.contrast), this.side(this.pair.baseline)];
    const shows = cells.unit === "s"
      ? `How many times as fast ${contrast} is as ${baseline}. Select a cell for its samples.`
      : `How many times as much ${contrast} needs as ${baseline}. Select a cell for its samples.`;
    return [
      element("p", { class: "counts" }, ...said),
      element("p", { class: "muted" }, shows, cells.conditions.length ? element("span", { class: "same-in-all" }, ` ${cells.conditions.join(", ")}`) : null),
      element("div", { class: "maps" }, ...maps),
    ];
  }

  heatMap(label, at, rows, column) {
    const cells = this.cellsOf(this.pair);
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
    const cells = this.cellsOf(this.pair);
    const word = this.data.verdicts[cells.verdict[i]];
    const [sign, kind] = VERDICTS[word];
    const ratio = cells.ratio[i];
    if (Number.isNaN(ratio)) return element("td", { class: `ratio ${kind}` }, `${sign} ${word}`);
    const times = (value) => (cells.unit === "s" ? 1 / value : value);
    const depth = Math.min(1, Math.abs(Math.log(ratio)) / DEEPEST);
    const ends = [cells.ratio_low[i], cells.ratio_high[i]].filter((end) => !Number.isNaN(end)).map(times).sort((a, b) => a - b);
    const interval = ends.length ? ` [${ends.map(threeDigits).join(", ")}]` : "";
    const flags = cells.flags[cells.flag[i]];
    const cell = element(
      "td", { class: `ratio ${kind}`, style: `--depth: ${Math.round(15 + 40 * depth)}%`, title: `${word}${interval}${flags.length ? `; ${flags.join(", ")}` : ""}` },
      element("span", { class: "sign" }, sign), ` ${threeDigits(times(ratio))}×`);
    opens(cell, () => this.openCell(this.pair, cells, i, label));
    return cell;
  }

  // Prices per hour, which the reader can change, and what each device costs for the same work.
  priceTable() {
    const { sides, pairs } = this.data;
    const { baseline } = this.pair;
    const timed = (pair) => pair.baseline === baseline && pair.cells?.unit === "s";
    const speed = (i) => (i === baseline ? { mean: 1 } : pairs.find((pair) => timed(pair) && pair.contrast === i)?.ratio);
    const priced = [...sides.keys()].filter((i) => sides[i].key === DEVICE && speed(i));
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
    return [
      element("h3", {}, "What differs in the environment"),
      this.fields("differences of the environment", environment, baseline, contrast),
    ];
  }
}

// Bytes as GiB, and commits by their first digits.
const shortened = (field, text) => (/memory/.test(field) ? text.replace(/\d{6,}/g, (bytes) => `${threeDigits(bytes / 2 ** 30)} GiB`)
  : text.replace(/\b[0-9a-f]{40}\b/g, (commit) => commit.slice(0, 10)));

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
