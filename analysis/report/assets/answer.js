// The first answer: shows the tables of the chosen pair of sides, which Python wrote, and works out prices.

const DEVICE = "device_name";

class Answer {
  constructor(data, openCell) {
    this.data = data;
    this.openCell = openCell;
    this.prices = data.sides.map((side, i) => Number.parseFloat(state.get(`price${i}`)) || side.price);
    const asked = (name) => data.sides.findIndex((side) => side.name === state.get(name) && side.key === state.get("by"));
    const found = this.between(asked("baseline"), asked("contrast"));
    this.pair = found.find((pair) => pair.measure === state.get("measure")) ?? found[0] ?? data.pairs[data.first];
    this.choices = [...document.querySelectorAll("#choices td.opens")];
    for (const cell of this.choices) opens(cell, () => this.choose([data.pairs[cell.dataset.pair]]));
    for (const table of document.querySelectorAll("#choices table")) {
      nameCells(table);
      walkable(table);
    }
    this.show();
  }

  side = (index) => this.data.sides[index].name;

  key = (pair) => this.data.sides[pair.baseline].key;

  between = (one, other) => this.data.pairs.filter((pair) => pair.baseline === one && pair.contrast === other);

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
    const focused = document.activeElement?.id;
    const number = this.data.pairs.indexOf(this.pair);
    const { content } = document.getElementById(`pair-${number}`);
    for (const id of ["answer", "answer-details", "heat", "differences"]) {
      document.getElementById(id).replaceChildren(...content.querySelector(`[data-to="${id}"]`)?.cloneNode(true).childNodes ?? []);
    }
    for (const table of document.querySelectorAll("#heat .heat")) this.prepareMap(table);
    for (const table of document.querySelectorAll(".differences")) nameCells(table);
    for (const cell of this.choices) cell.parentElement.classList.toggle("chosen", Number(cell.dataset.pair) === number);
    document.getElementById("pick").replaceChildren(...this.pickers());
    document.getElementById("prices").replaceChildren(...(this.key(this.pair) === DEVICE ? this.priceTable() : []));
    if (focused) document.getElementById(focused)?.focus();
  }

  prepareMap(table) {
    const { value } = table.dataset;
    nameCells(table);
    makeSortable(table);
    for (const cell of table.querySelectorAll("td.opens")) {
      const sides = [this.pair.baseline, this.pair.contrast].map((index) => this.data.sides[index]);
      const places = cell.dataset.results.split(",").map((result, i) => ({ store: sides[i].store, side: sides[i].name, result: Number(result) }));
      opens(cell, () => this.openCell(value, places.filter(({ result }) => result >= 0), cell.dataset.words));
    }
    walkable(table);
    const map = table.closest(".map");
    map.querySelector(".more")?.addEventListener("click", (event) => { table.classList.add("all"); event.currentTarget.remove(); });
    map.append(tableTools(value, () => table, () => csvOfTable(table)));
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

  // Prices per hour, which the reader can change, and what each device costs for the same work.
  priceTable() {
    const { sides, pairs } = this.data;
    const { baseline } = this.pair;
    const timed = (pair) => pair.baseline === baseline && pair.unit === "s";
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
}

const threeDigits = (value) => (Math.abs(value) >= 1000 ? value.toFixed(0) : Number(value).toPrecision(3));
