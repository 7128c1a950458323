// Everything about one result, or about the two results of a compared cell: samples, environment, flags, command.

const ENVIRONMENT = [
  "device_name", "device_memory", "driver_version", "cuda_version", "torch_version", "triton_version", "python_version",
  "host_name", "host_cpu", "host_cores", "cores_used", "lmsweep_version", "code_revision",
];

const NO_VALUE = "-";

const decoded = (text, type) => text && new type(Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0)).buffer);

class Drill {
  constructor(data) {
    this.data = data;
    this.keys = new Map(); // name of a key -> its decoded codes
    this.dialog = document.getElementById("drill");
    this.dialog.addEventListener("close", () => {
      const chart = document.getElementById("drill-chart");
      if (chart) { Plotly.purge(chart); drawn.delete(chart); }
      remember("result", null);
    });
    this.dialog.addEventListener("click", (event) => { if (event.target === this.dialog) this.dialog.close(); });
  }

  // The index of a result's value of a key among the key's labels.
  code(name, result) {
    const { codes } = this.data.keys[name];
    if (codes && !this.keys.has(name)) this.keys.set(name, decoded(codes, Int32Array));
    return codes ? this.keys.get(name)[result] : 0;
  }

  label = (name, result) => this.data.keys[name].labels[this.code(name, result)];

  // The result that the address names, after a reload.
  recall() {
    const [name, ...texts] = (state.get("result") ?? "").split("~");
    const results = texts.map(Number).filter((result) => result >= 0 && result < this.data.results);
    if (results.length && this.data.values[this.stored(name)]) this.open(name, results);
  }

  // The value whose samples are shown: of a derived one, such as step.mfu, the stored one.
  stored(name) {
    const [phase, metric] = [name.slice(0, name.lastIndexOf(".")), name.slice(name.lastIndexOf(".") + 1)];
    const source = this.data.derived[metric];
    return source ? `${phase}.${source}` : name;
  }

  open(name, results, words = "") {
    const value = this.stored(name);
    remember("result", [name, ...results].join("~"));
    const shown = results.map((result, i) => this.measured(value, result, i)).filter(Boolean);
    const chart = shown.some((one) => one.samples.length > 1)
      ? element("div", { class: "chart", id: "drill-chart", role: "group", "aria-label": `samples of ${value}` }) : null;
    this.dialog.replaceChildren(
      element("form", { method: "dialog" }, element("button", { class: "close", "aria-label": "close" }, "Close ✕")),
      element("h2", { id: "drill-title" }, `${value}: ${this.title(results)}`), words && element("p", {}, words),
      ...(chart ? [chart, element("p", { class: "note" }, this.aboutSamples(shown))] : []),
      ...results.flatMap((result) => this.about(value, result, results)));
    if (!this.dialog.open) this.dialog.showModal();
    this.dialog.scrollTop = 0;
    if (chart) this.drawSamples(chart, value, shown);
  }

  // The keys that tell this result from others; of several results, those in which they agree.
  title(results) {
    const { keys, conditions } = this.data;
    const skipped = ["sweep", "workload", "device_memory", ...(results.length > 1 ? ["device_name", "device", ...ENVIRONMENT] : [])];
    const names = conditions.filter((name) => keys[name]?.codes && !skipped.includes(name)
      && results.every((result) => this.label(name, result) === this.label(name, results[0])));
    const known = names.map((name) => [name, this.label(name, results[0])]).filter(([, words]) => words !== NO_VALUE);
    return known.map(([name, words]) => (/^[\d.]+$|^(true|false|none)$/.test(words) ? `${name} ${words}` : words)).join(", ")
      || (results.length > 1 ? "all else equal" : "the only result");
  }

  // What a result is called beside another: by the fields in which they differ.
  sideOf(result, results) {
    const { keys, conditions } = this.data;
    const names = conditions.filter((name) => keys[name]?.codes && new Set(results.map((one) => this.label(name, one))).size > 1);
    return names.map((name) => this.label(name, result)).join(", ") || this.label("device_name", result);
  }

  // A value of a result, with its samples; null if the result lacks it. index: its place among those shown together.
  measured(name, result, index) {
    const value = this.data.values[name];
    value.at ??= decoded(value.result, Int32Array);
    const at = value.at.indexOf(result);
    if (at < 0) return null;
    const one = (text) => decoded(text, Float64Array)?.[at] ?? NaN;
    const slice = (numbers, lengths) => {
      if (!numbers) return [];
      const counts = decoded(lengths, Int32Array);
      const start = counts.slice(0, at).reduce((sum, count) => sum + count, 0);
      return [...decoded(numbers, Float32Array).slice(start, start + counts[at])];
    };
    const word = (codes, words) => words[decoded(codes, Int32Array)?.[at] ?? 0];
    return {
      index, result, text: value.text[at], unit: value.unit, median: one(value.median), low: one(value.low), high: one(value.high),
      processes: one(value.processes) || 1, spread: one(value.spread),
      flags: word(value.flags, this.data.flags), reason: word(value.reason, this.data.reasons),
      samples: slice(value.samples, value.samples_lengths), warmup: slice(value.warmup, value.warmup_lengths),
    };
  }

  aboutSamples(shown) {
    const { stride } = this.data;
    const words = shown.map((one) => `${one.samples.length} samples${one.warmup.length ? ` after ${one.warmup.length} warm-up iterations (hollow)` : ""}`
      + (one.processes > 1 ? ` from ${one.processes} processes, whose medians differ by ${Number((100 * one.spread).toPrecision(2))} %` : ""));
    return [...new Set(words)].join("; ") + (stride > 1 ? `. Of each result, every ${stride}th sample is in this page` : "") + ". The line is the median, the band its 95 % interval.";
  }

  drawSamples(target, name, shown) {
    const [unit, size] = shown[0].unit;
    const results = shown.map((one) => one.result);
    draw(target, () => {
      const traces = [];
      const shapes = [];
      for (const one of shown) {
        const colour = colours()[one.index];
        const scaled = (values) => values.map((value) => value / size);
        const trace = (values, start, extra) => ({
          type: "scatter", mode: "markers", x: values.map((_, i) => start + i), y: scaled(values), name: plain(this.sideOf(one.result, results)),
          hovertemplate: `%{y:.4~r} ${unit}<extra>%{fullData.name}</extra>`, ...extra,
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
          xaxis: { title: { text: "iteration (warm-up below 0)" } }, yaxis: { title: { text: plain(`${name} (${unit})`) } },
        },
      };
    });
  }

  // The number, its flags, the other values, the environment and the command of one result.
  about(name, result, results) {
    const one = this.measured(name, result, 0);
    const status = this.data.status[result];
    const said = one?.text || (status === "ok" ? "n/a" : status);
    const command = this.command(result);
    const side = this.sideOf(result, results);
    const values = Object.keys(this.data.values).map((other) => [other, this.measured(other, result, 0)?.text || NO_VALUE]);
    return [
      results.length > 1 && element("h3", {}, side),
      element("p", { class: "number" }, element("b", {}, said), one?.reason ? `: ${one.reason}` : ""),
      ...(one?.flags ?? []).map((flag) => element("p", { class: "note" }, element("b", {}, flag), `: ${this.data.advice[flag] ?? ""}`)),
      element("p", { class: "command" }, element("code", {}, command), " ", element(
        "button", { type: "button", "aria-label": `copy the command for ${side}`, onclick: (event) => copyText(command, event.currentTarget) }, "Copy")),
      disclosure("Environment", definitions(ENVIRONMENT.map((key) => [key, this.label(key, result)]))),
      disclosure("All values", definitions(values)),
    ].filter(Boolean);
  }

  // The command that repeats the result on the machine where it is given.
  command(result) {
    const { defaults, named } = this.data.trial;
    const text = (name) => {
      const { numbers, csv, labels } = this.data.keys[name];
      const code = this.code(name, result);
      return numbers ? csv?.[code] ?? labels[code] : labels[code];
    };
    const model = text("model");
    const words = Object.keys(defaults).filter((name) => {
      if (name === "model") return named[model];
      if (named[model] && ["d_model", "d_ff", "num_layers", "num_heads"].includes(name)) return false;
      const label = this.label(name, result);
      return label !== NO_VALUE && label !== defaults[name];
    }).map((name) => `${name}=${text(name)}`);
    return ["lmsweep", "trial", ...words, `workloads=${text("workload")}`].map(shellQuoted).join(" ");
  }
}

const disclosure = (title, content) => element("details", {}, element("summary", {}, title), content);

const definitions = (pairs) => element(
  "dl", { class: "pairs" }, ...pairs.filter(([, text]) => text !== NO_VALUE).flatMap(([name, text]) => [element("dt", {}, name), element("dd", {}, text)]));

const shellQuoted = (text) => (/^[\w.,:=+@%/-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);
