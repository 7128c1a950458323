// Everything about one result, or about the two results of a compared cell: samples, environment, flags, command.

const ENVIRONMENT = [
  "device_name", "device_memory", "driver_version", "cuda_version", "torch_version", "triton_version", "python_version",
  "host_name", "host_cpu", "host_cores", "cores_used", "lmsweep_version", "code_revision",
];

class Drill {
  constructor(results) {
    this.results = results;
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
    const [name, ...indices] = (state.get("result") ?? "").split("~");
    const shown = indices.map(Number).filter((index) => index >= 0 && index < this.results.count);
    if (this.results.data.values[name] && shown.length) this.open(name, shown);
  }

  // The value whose samples are shown: of a derived one, such as step.mfu, the stored one.
  stored(name) {
    const [phase, metric] = [name.slice(0, name.lastIndexOf(".")), name.slice(name.lastIndexOf(".") + 1)];
    const source = this.results.data.derived[metric];
    return source ? `${phase}.${source}` : name;
  }

  open(name, indices, lead = []) {
    const { results } = this;
    const value = this.stored(name);
    remember("result", [name, ...indices].join("~"));
    const shown = indices.map((result, i) => this.measured(value, result, i)).filter(Boolean);
    const title = this.title(indices[0], indices.length > 1);
    const chart = shown.some((one) => one.samples?.length > 1)
      ? element("div", { class: "chart", id: "drill-chart", role: "group", "aria-label": `samples of ${value}` }) : null;
    this.dialog.replaceChildren(
      element("form", { method: "dialog" }, element("button", { class: "close", "aria-label": "close" }, "Close ✕")),
      element("h2", { id: "drill-title" }, `${value}: ${title}`), ...lead,
      ...(chart ? [chart, element("p", { class: "note" }, this.aboutSamples(shown))] : []),
      ...indices.flatMap((result, i) => this.about(value, result, shown.length > 1 || indices.length > 1 ? i : null)));
    if (!this.dialog.open) this.dialog.showModal();
    this.dialog.scrollTop = 0;
    if (chart) this.drawSamples(chart, value, shown);
  }

  // The keys that tell this result from others.
  title(result, withoutDevice) {
    const { results } = this;
    const skipped = ["sweep", "workload", "device_memory", ...(withoutDevice ? ["device_name", "device", ...ENVIRONMENT] : [])];
    const names = results.data.conditions.filter((name) => results.codes(name) && !skipped.includes(name));
    const known = names.map((name) => [name, results.label(name, results.code(name, result))]).filter(([, text]) => text !== NO_VALUE);
    return known.map(([name, text]) => (/^[\d.]+$|^(true|false|none)$/.test(text) ? `${name} ${text}` : text)).join(", ") || "the only result";
  }

  measured(name, result, index) {
    const value = this.results.value(name);
    const at = value?.result.indexOf(result) ?? -1;
    if (at < 0) return null;
    const slice = (numbers, lengths) => {
      if (!numbers) return [];
      let start = 0;
      for (let i = 0; i < at; i += 1) start += lengths[i];
      return [...numbers.slice(start, start + lengths[at])];
    };
    return {
      index, result, median: value.median[at], low: value.low?.[at] ?? NaN, high: value.high?.[at] ?? NaN,
      processes: value.processes?.[at] ?? 1, spread: value.spread?.[at] ?? NaN, unit: value.unit,
      flags: this.results.data.flags[value.flags?.[at] ?? 0], reason: this.results.data.reasons[value.reason?.[at] ?? 0],
      samples: slice(value.samples, value.samplesLengths), warmup: slice(value.warmup, value.warmupLengths),
      processLengths: value.processLengths?.[at],
    };
  }

  aboutSamples(shown) {
    const { stride } = this.results.data;
    const words = shown.map((one) => `${one.samples.length} samples${one.warmup.length ? ` after ${one.warmup.length} warm-up iterations (hollow)` : ""}`
      + (one.processes > 1 ? ` from ${one.processes} processes, whose medians differ by ${Number((100 * one.spread).toPrecision(2))} %` : ""));
    return [...new Set(words)].join("; ") + (stride > 1 ? `. Of each result, every ${stride}th sample is in this page` : "") + ". The line is the median, the band its 95 % interval.";
  }

  drawSamples(target, name, shown) {
    const unit = chooseUnit(this.results.data.units, shown[0].unit, shown.map((one) => one.median));
    const device = (one) => this.results.label("device_name", this.results.code("device_name", one.result));
    draw(target, () => {
      const traces = [];
      const shapes = [];
      for (const one of shown) {
        const colour = colours()[one.index];
        const scaled = (values) => values.map((value) => value / unit.size);
        const trace = (values, start, extra) => ({
          type: "scatter", mode: "markers", x: values.map((_, i) => start + i), y: scaled(values), name: plain(device(one)),
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
  about(name, result, index) {
    const { results } = this;
    const one = this.measured(name, result, index ?? 0);
    const device = results.label("device_name", results.code("device_name", result));
    const status = results.statusWord(result);
    const parts = [];
    if (index != null) parts.push(element("h3", {}, device));
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
    const command = this.command(result);
    parts.push(
      element("p", { class: "command" }, element("code", {}, command), " ", element(
        "button", { type: "button", "aria-label": `copy the command for ${device}`, onclick: (event) => copyText(command, event.currentTarget) }, "Copy")),
      disclosure("Environment", definitions(ENVIRONMENT.map((key) => [key, results.label(key, results.code(key, result))]))),
      disclosure("All values", definitions(this.allValues(result))));
    return parts;
  }

  allValues(result) {
    const { results } = this;
    return Object.keys(results.data.values).map((name) => {
      const one = this.measured(name, result, 0);
      if (!one || Number.isNaN(one.median)) return null;
      const unit = chooseUnit(results.data.units, one.unit, [one.median]);
      const [number, interval] = intervalTexts(...[one.median, one.low, one.high].map((value) => value / unit.size));
      return [name, `${number}${interval ? ` ${interval}` : ""} ${unit.name}`];
    }).filter(Boolean);
  }

  // The command that repeats the result on the machine where it is given.
  command(result) {
    const { results } = this;
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

  // The results that a compared cell stands for, those of the page's own store.
  ofCell(pair, i, value, sides) {
    const { results } = this;
    const { value: _, ...keys } = pair.cells.keys;
    const base = this.results.data.values[value] && results.value(value);
    const find = (side) => (side.own && base ? [...base.result].find((result) =>
      results.label("device_name", results.code("device_name", result)) === side.device
      && Object.entries(keys).every(([name, { labels, codes }]) =>
        !results.data.keys[name] || results.label(name, results.code(name, result)) === labels[codes[i]])) : undefined);
    return [sides[pair.baseline], sides[pair.contrast]].map(find).filter((result) => result !== undefined);
  }
}

const disclosure = (title, content) => element("details", {}, element("summary", {}, title), content);

const definitions = (pairs) => element(
  "dl", { class: "pairs" }, ...pairs.filter(([, text]) => text !== NO_VALUE).flatMap(([name, text]) => [element("dt", {}, name), element("dd", {}, text)]));

const shellQuoted = (text) => (/^[\w.,:=+@%/-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);
