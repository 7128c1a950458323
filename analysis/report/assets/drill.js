// Everything about one result, or about the two results of a compared cell: samples, environment, flags, command.

const ENVIRONMENT = [
  "device_name", "device_memory", "driver_version", "cuda_version", "torch_version", "triton_version", "python_version",
  "host_name", "host_cpu", "host_cores", "cores_used", "lmsweep_version", "code_revision",
];

class Drill {
  // stores: the Results of the page's store and of those beside it.
  constructor(stores) {
    this.stores = stores;
    this.dialog = document.getElementById("drill");
    this.dialog.addEventListener("close", () => {
      const chart = document.getElementById("drill-chart");
      if (chart) { Plotly.purge(chart); drawn.delete(chart); }
      remember("result", null);
    });
    this.dialog.addEventListener("click", (event) => { if (event.target === this.dialog) this.dialog.close(); });
  }

  // The result that the address names, after a reload.
  recall() {
    const [name, ...texts] = (state.get("result") ?? "").split("~");
    const places = texts.map((text) => text.split("@").map(Number)).map(([result, store = 0]) => ({ store, result }))
      .filter(({ store, result }) => result >= 0 && result < this.stores[store]?.count && this.stores[store].data.values[this.stored(name)]);
    if (places.length) this.open(name, places);
  }

  // The value whose samples are shown: of a derived one, such as step.mfu, the stored one.
  stored(name) {
    const [phase, metric] = [name.slice(0, name.lastIndexOf(".")), name.slice(name.lastIndexOf(".") + 1)];
    const source = this.stores[0].data.derived[metric];
    return source ? `${phase}.${source}` : name;
  }

  // places: of each result its store, its number in it, and, of a compared cell, the side that it is of.
  open(name, places, lead = []) {
    const value = this.stored(name);
    remember("result", [name, ...places.map(({ store, result }) => (store ? `${result}@${store}` : result))].join("~"));
    const several = places.length > 1;
    const shown = places.map((place, i) => this.measured(value, place, i)).filter(Boolean);
    const chart = shown.some((one) => one.samples?.length > 1)
      ? element("div", { class: "chart", id: "drill-chart", role: "group", "aria-label": `samples of ${value}` }) : null;
    this.dialog.replaceChildren(
      element("form", { method: "dialog" }, element("button", { class: "close", "aria-label": "close" }, "Close ✕")),
      element("h2", { id: "drill-title" }, `${value}: ${this.title(places)}`), ...lead,
      ...(chart ? [chart, element("p", { class: "note" }, this.aboutSamples(shown))] : []),
      ...places.flatMap((place, i) => this.about(value, place, several ? i : null)));
    if (!this.dialog.open) this.dialog.showModal();
    this.dialog.scrollTop = 0;
    if (chart) this.drawSamples(chart, value, shown);
  }

  // The keys that tell this result from others of its store; of several results, those in which they agree.
  title(places) {
    const text = ({ store, result }, name) => this.stores[store].label(name, this.stores[store].code(name, result));
    const [first] = places;
    const skipped = ["sweep", "workload", "device_memory", ...(places.length > 1 ? ["device_name", "device", ...ENVIRONMENT] : [])];
    const { data } = this.stores[first.store];
    const names = data.conditions.filter((name) => data.keys[name]?.codes && !skipped.includes(name)
      && places.every((place) => text(place, name) === text(first, name)));
    const known = names.map((name) => [name, text(first, name)]).filter(([, words]) => words !== NO_VALUE);
    return known.map(([name, words]) => (/^[\d.]+$|^(true|false|none)$/.test(words) ? `${name} ${words}` : words)).join(", ")
      || (places.length > 1 ? "all else equal" : "the only result");
  }

  // What a side is called: by the value of the choice, or by its device.
  sideOf = ({ store, result, side }) => side ?? this.stores[store].label("device_name", this.stores[store].code("device_name", result));

  measured(name, place, index) {
    const { result } = place;
    const results = this.stores[place.store];
    const value = results.value(name);
    const at = value?.result.indexOf(result) ?? -1;
    if (at < 0) return null;
    const slice = (numbers, lengths) => {
      if (!numbers) return [];
      let start = 0;
      for (let i = 0; i < at; i += 1) start += lengths[i];
      return [...numbers.slice(start, start + lengths[at])];
    };
    return {
      index, result, side: this.sideOf(place), stride: results.data.stride, median: value.median[at], low: value.low?.[at] ?? NaN, high: value.high?.[at] ?? NaN,
      processes: value.processes?.[at] ?? 1, spread: value.spread?.[at] ?? NaN, unit: value.unit,
      flags: results.data.flags[value.flags?.[at] ?? 0], reason: results.data.reasons[value.reason?.[at] ?? 0],
      samples: slice(value.samples, value.samplesLengths), warmup: slice(value.warmup, value.warmupLengths),
      processLengths: value.processLengths?.[at],
    };
  }

  aboutSamples(shown) {
    const stride = Math.max(...shown.map((one) => one.stride));
    const words = shown.map((one) => `${one.samples.length} samples${one.warmup.length ? ` after ${one.warmup.length} warm-up iterations (hollow)` : ""}`
      + (one.processes > 1 ? ` from ${one.processes} processes, whose medians differ by ${Number((100 * one.spread).toPrecision(2))} %` : ""));
    return [...new Set(words)].join("; ") + (stride > 1 ? `. Of each result, every ${stride}th sample is in this page` : "") + ". The line is the median, the band its 95 % interval.";
  }

  drawSamples(target, name, shown) {
    const unit = chooseUnit(this.stores[0].data.units, shown[0].unit, shown.map((one) => one.median));
    draw(target, () => {
      const traces = [];
      const shapes = [];
      for (const one of shown) {
        const colour = colours()[one.index];
        const scaled = (values) => values.map((value) => value / unit.size);
        const trace = (values, start, extra) => ({
          type: "scatter", mode: "markers", x: values.map((_, i) => start + i), y: scaled(values), name: plain(one.side),
          hovertemplate: `%{y:.4~r} ${unit.name}<extra>%{fullData.name}</extra>`, ...extra,
        });
        if (one.warmup.length) {
          traces.push(trace(one.warmup, -one.warmup.length, { showlegend: false, marker: { color: colour, size: 7, symbol: "circle-open" } }));
        }
        traces.push(trace(one.samples, 0, { marker: { color: colour, size: 6 } }));
        const [median, low, high] = scaled([one.median, one.low, one.high]);
        shapes.push({ type: "line", x0: 0, x1: one.samples.length - 1, y0: median, y1: median, line: { color: colour, width: 1.5 } });
        if (!Number.isNaN(low)) {
          shapes.push({ type: "rect", x0: 0, x1: one.samples.length - 1, y0: low, y1: high, line: { width: 0 }, fillcolor: colour, opacity: 0.15 });
        }
      }
      return {
        traces,
        layout: {
          title: { text: plain(`${name}: samples in the order of measuring`) }, showlegend: shown.length > 1, height: 300, shapes,
          xaxis: { title: { text: "iteration (warm-up below 0)" } }, yaxis: { title: { text: plain(`${name} (${unit.name})`) } },
        },
      };
    });
  }

  // The number, its flags, the other values, the environment and the command of one result.
  about(name, place, index) {
    const { result } = place;
    const results = this.stores[place.store];
    const one = this.measured(name, place, index ?? 0);
    const status = results.statusWord(result);
    const parts = [];
    if (index != null) parts.push(element("h3", {}, this.sideOf(place)));
    if (one && !Number.isNaN(one.median)) {
      const unit = chooseUnit(results.data.units, one.unit, [one.median]);
      const [number, interval] = intervalTexts(...[one.median, one.low, one.high].map((value) => value / unit.size));
      parts.push(element("p", { class: "number" }, element("b", {}, `${number} ${unit.name}`), interval ? ` ${interval}` : ""));
    } else {
      parts.push(element("p", { class: "number" }, element("b", {}, status === "ok" ? "n/a" : status), one?.reason ? `: ${one.reason}` : ""));
    }
    for (const flag of one?.flags ?? []) {
      parts.push(element("p", { class: "note" }, element("b", {}, flag), `: ${results.data.advice[flag] ?? ""}`));
    }
    const command = this.command(place);
    parts.push(
      element("p", { class: "command" }, element("code", {}, command), " ", element(
        "button", { type: "button", "aria-label": `copy the command for ${this.sideOf(place)}`, onclick: (event) => copyText(command, event.currentTarget) }, "Copy")),
      disclosure("Environment", definitions(ENVIRONMENT.map((key) => [key, results.label(key, results.code(key, result))]))),
      disclosure("All values", definitions(this.allValues(place))));
    return parts;
  }

  allValues(place) {
    const results = this.stores[place.store];
    return Object.keys(results.data.values).map((name) => {
      const one = this.measured(name, place, 0);
      if (!one || Number.isNaN(one.median)) return null;
      const unit = chooseUnit(results.data.units, one.unit, [one.median]);
      const [number, interval] = intervalTexts(...[one.median, one.low, one.high].map((value) => value / unit.size));
      return [name, `${number}${interval ? ` ${interval}` : ""} ${unit.name}`];
    }).filter(Boolean);
  }

  // The command that repeats the result on the machine where it is given.
  command({ store = 0, result }) {
    const results = this.stores[store];
    const { defaults, named } = results.data.trial;
    const text = (name) => {
      const key = results.data.keys[name];
      const code = results.code(name, result);
      return key.numbers ? key.csv?.[code] ?? key.labels[code] : key.labels[code];
    };
    const model = text("model");
    const words = Object.keys(defaults).filter((name) => {
      if (name === "model") return named[model];
      if (named[model] && ["d_model", "d_ff", "num_layers", "num_heads"].includes(name)) return false;
      const label = results.label(name, results.code(name, result));
      return label !== NO_VALUE && label !== defaults[name];
    }).map((name) => `${name}=${text(name)}`);
    return ["lmsweep", "trial", ...words, `workloads=${text("workload")}`].map(shellQuoted).join(" ");
  }
}

const disclosure = (title, content) => element("details", {}, element("summary", {}, title), content);

const definitions = (pairs) => element(
  "dl", { class: "pairs" }, ...pairs.filter(([, text]) => text !== NO_VALUE).flatMap(([name, text]) => [element("dt", {}, name), element("dd", {}, text)]));

const shellQuoted = (text) => (/^[\w.,:=+@%/-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);
