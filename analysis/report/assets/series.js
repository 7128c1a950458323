// The first chart: one value of the table along one key, with a line for each combination of the other keys.

// A panel with more lines than this is divided into several.
const LINES_OF_A_PANEL = 8;
const MOST_PANELS = 12;

// Keys in which the selected cells differ, those best suited as x axis first.
function possibleX(results, keys, cells) {
  const codesOf = (name) => new Set(cells.map((cell) => results.code(name, cell.result)));
  const worth = (name) => {
    if (name === "context_length") return 3;
    if (name === "model") return 2;
    return isNumeric(results, name, cells) ? 1 : 0;
  };
  // Along a good x axis a line has several points.
  const points = (name) => {
    const others = keys.filter((key) => key !== name);
    const lines = new Set(cells.map((cell) => others.map((key) => results.code(key, cell.result)).join()));
    return cells.length / lines.size;
  };
  const isLine = new Map(keys.map((name) => [name, cells.length > 0 && points(name) >= 1.5]));
  return keys.filter((name) => cells.length && codesOf(name).size > 1)
    .sort((a, b) => isLine.get(b) - isLine.get(a) || worth(b) - worth(a));
}

// Whether all of these results have a number for this key, so that its axis can be numeric.
function isNumeric(results, name, cells) {
  const { numbers } = results.data.keys[name];
  return Boolean(numbers) && cells.every((cell) => numbers[results.code(name, cell.result)] != null);
}

// The lines, each in a panel, and with a colour and a look (dash and symbol) that no other line of the panel has.
function seriesOf(results, table, cells, { x, colour, facet }) {
  const keys = [...table.rows, ...table.cols].filter((name) => name !== x);
  const differing = possibleX(results, keys, cells);
  const numbers = cells.filter((cell) => !Number.isNaN(cell.median));
  const unit = chooseUnit(results.data.units, table.units[cells[0].valueIndex], numbers.map((cell) => cell.median));
  const byKey = new Map();
  for (const cell of cells) {
    const codes = differing.map((name) => results.code(name, cell.result));
    const key = codes.join();
    if (!byKey.has(key)) byKey.set(key, { codes, cells: [] });
    byKey.get(key).cells.push(cell);
  }
  const all = [...byKey.values()].sort((a, b) => compare(a.codes, b.codes));
  const divided = facet == null ? defaultFacets(differing, all) : facet.filter((name) => differing.includes(name));
  const inside = differing.filter((name) => !divided.includes(name));
  const codesOf = (one, names) => names.map((name) => one.codes[differing.indexOf(name)]);
  const text = (one, names) => names.map((name) => results.label(name, one.codes[differing.indexOf(name)])).join(", ");
  const panels = new Map();
  const series = [];
  for (const one of all) {
    const key = codesOf(one, divided).join();
    if (!panels.has(key)) {
      if (panels.size === MOST_PANELS) continue;
      panels.set(key, { index: panels.size, lines: 0, name: divided.map((name) => `${name} ${text(one, [name])}`).join(", ") });
    }
    const panel = panels.get(key);
    if (panel.lines === LINES_OF_A_PANEL) continue;
    one.panel = panel.index;
    one.position = panel.lines;
    panel.lines += 1;
    series.push(one);
  }
  const left = all.length - series.length;
  // A panel with a single column of points says nothing that the table does not say better.
  const columnsOf = (index) => new Set(series.filter((one) => one.panel === index).flatMap((one) => one.cells.map((cell) => results.code(x, cell.result)))).size;
  const thin = [...panels.values()].filter(({ index }) => columnsOf(index) < 2);
  let single = 0;
  if (thin.length && thin.length < panels.size) {
    for (const [key, panel] of panels) if (thin.includes(panel)) panels.delete(key);
    const place = new Map([...panels.values()].map((panel, i) => [panel.index, i]));
    single = series.filter((one) => !place.has(one.panel)).flatMap((one) => one.cells).length;
    series.splice(0, series.length, ...series.filter((one) => place.has(one.panel)));
    for (const one of series) one.panel = place.get(one.panel);
    for (const panel of panels.values()) panel.index = place.get(panel.index);
  }
  const shade = inside.includes(colour) ? colour : defaultColour(results, inside, cells);
  const rest = inside.filter((name) => name !== shade);
  const order = (names) => new Map([...new Map(series.map((one) => [codesOf(one, names).join(), codesOf(one, names)])).entries()]
    .sort(([, a], [, b]) => compare(a, b)).map(([key], i) => [key, i]));
  const [shades, looks, whole] = [order([shade].filter(Boolean)), order(rest), order(inside)];
  const fits = shades.size <= COLOUR_COUNT && looks.size <= DASHES.length;
  for (const one of series) {
    const position = whole.size <= COLOUR_COUNT * DASHES.length ? whole.get(codesOf(one, inside).join()) : one.position;
    one.colour = fits ? shades.get(codesOf(one, [shade].filter(Boolean)).join()) : position % COLOUR_COUNT;
    one.look = fits ? looks.get(codesOf(one, rest).join()) : Math.floor(position / COLOUR_COUNT);
    one.name = text(one, inside);
  }
  return { series, differing, inside, facet: divided, shade, panels: [...panels.values()], unit, single, left };
}

// The keys that divide many lines into the fewest panels of at most LINES_OF_A_PANEL lines.
function defaultFacets(differing, all) {
  if (all.length <= LINES_OF_A_PANEL) return [];
  const count = (names) => {
    const sizes = new Map();
    for (const one of all) {
      const key = names.map((name) => one.codes[differing.indexOf(name)]).join();
      sizes.set(key, (sizes.get(key) ?? 0) + 1);
    }
    return { names, panels: sizes.size, lines: Math.max(...sizes.values()) };
  };
  const pairs = differing.flatMap((one, i) => differing.slice(i + 1).map((other) => [one, other]));
  const tried = [...differing.map((name) => [name]), ...pairs].map(count).filter(({ panels }) => panels <= MOST_PANELS);
  const fit = tried.filter(({ lines }) => lines <= LINES_OF_A_PANEL);
  const best = fit.length ? fit.sort((a, b) => a.panels - b.panels) : tried.sort((a, b) => a.lines - b.lines);
  return best[0]?.names ?? [];
}

// The key with the most values among those for which there are enough colours.
function defaultColour(results, keys, cells) {
  const count = (name) => new Set(cells.map((cell) => results.code(name, cell.result))).size;
  const wordsFirst = (a, b) => isNumeric(results, a, cells) - isNumeric(results, b, cells);
  const few = keys.filter((name) => count(name) <= COLOUR_COUNT).sort((a, b) => count(b) - count(a) || wordsFirst(a, b));
  return few[0] ?? keys[0];
}

const axisNumber = (letter, panel) => (panel ? `${letter}${panel + 1}` : letter);

// Where the points of each line stand: at the number of their key, or, of words, side by side around the place of theirs.
function placesOf(results, chosen, x, numeric) {
  const { numbers } = results.data.keys[x];
  if (numeric) return () => (code) => numbers[code];
  const used = [...new Set(chosen.series.flatMap((one) => one.cells.map((cell) => results.code(x, cell.result))))].sort((a, b) => a - b);
  const place = new Map(used.map((code, i) => [code, i]));
  const names = [...new Set(chosen.series.map((one) => one.name))];
  const step = isOrdered(x, numeric) ? 0 : Math.min(0.09, 0.6 / names.length);
  return (one) => (code) => place.get(code) + step * (names.indexOf(one.name) - (names.length - 1) / 2);
}

// Whether lines may join the points along this key.
const isOrdered = (x, numeric) => numeric || x === "model";

// Plotly's traces and `points`, the cell of each of their points.
function tracesOf(results, table, chosen, x, numeric) {
  const ordered = isOrdered(x, numeric);
  const placeOf = placesOf(results, chosen, x, numeric);
  const palette = colours();
  const inLegend = new Set();
  const points = [];
  const traces = chosen.series.map((one) => {
    const cells = one.cells.filter((cell) => !Number.isNaN(cell.median)).sort((a, b) => results.code(x, a.result) - results.code(x, b.result));
    const codes = cells.map((cell) => results.code(x, cell.result));
    const scaled = (value) => value / chosen.unit.size;
    const distance = (end) => (Number.isNaN(end) ? 0 : Math.abs(end));
    const colour = palette[one.colour];
    const oneEach = new Set(codes).size === codes.length;
    const first = !inLegend.has(one.name);
    inLegend.add(one.name);
    points.push(cells);
    return {
      type: "scatter", mode: ordered && oneEach ? "lines+markers" : "markers", name: plain(one.name),
      xaxis: axisNumber("x", one.panel), yaxis: axisNumber("y", one.panel), legendgroup: one.name, showlegend: first,
      x: codes.map(placeOf(one)),
      y: cells.map((cell) => scaled(cell.median)),
      error_y: {
        type: "data", symmetric: false, thickness: 1.2, width: 3, color: colour,
        array: cells.map((cell) => distance(scaled(cell.high - cell.median))),
        arrayminus: cells.map((cell) => distance(scaled(cell.median - cell.low))),
      },
      line: { color: colour, width: 1.8, dash: DASHES[one.look % DASHES.length] },
      marker: { color: colour, size: 7, symbol: SYMBOLS[one.look % SYMBOLS.length] },
      customdata: cells.map((cell) => hoverText(results, table, cell, chosen.unit, x)),
      hovertemplate: "%{customdata}<extra></extra>",
    };
  });
  return { traces, points };
}

// Of memory: the memory of each panel's devices as a line, and results that did not fit as crosses upon it.
function limitsOf(results, table, chosen, x, numeric) {
  const placeOf = placesOf(results, chosen, x, numeric);
  const memory = results.data.keys.device_memory.numbers;
  const capacity = (cell) => memory?.[results.code("device_memory", cell.result)];
  const traces = [];
  const points = [];
  const shapes = [];
  const palette = colours();
  for (const one of chosen.series) {
    const failed = one.cells.filter((cell) => cell.status === "oom" && capacity(cell));
    for (const size of new Set(failed.map(capacity))) {
      const y = size / chosen.unit.size;
      const axes = { xref: `${axisNumber("x", one.panel)} domain`, yref: axisNumber("y", one.panel) };
      shapes.push({ type: "line", x0: 0, x1: 1, y0: y, y1: y, ...axes, line: { color: resolved("--failed"), width: 1, dash: "dot" } });
    }
    if (!failed.length) continue;
    points.push(failed);
    traces.push({
      type: "scatter", mode: "markers", name: "oom: the device's memory", legendgroup: "oom", showlegend: points.length === 1,
      xaxis: axisNumber("x", one.panel), yaxis: axisNumber("y", one.panel),
      x: failed.map((cell) => placeOf(one)(results.code(x, cell.result))),
      y: failed.map((cell) => capacity(cell) / chosen.unit.size),
      marker: { color: palette[one.colour], size: 10, symbol: "x-thin", line: { color: palette[one.colour], width: 2 } },
      customdata: failed.map(() => `<b>oom</b><br>${plain(one.name)}`), hovertemplate: "%{customdata}<extra></extra>",
    });
  }
  return { traces, points, shapes };
}

function hoverText(results, table, cell, unit, x) {
  const [number, interval] = intervalTexts(...[cell.median, cell.low, cell.high].map((value) => value / unit.size));
  const name = (key) => `${key} ${results.label(key, results.code(key, cell.result))}`;
  const keys = [x, ...[...table.rows, ...table.cols].filter((key) => key !== x)];
  const lines = [
    `<b>${plain(number)}${interval == null ? "" : ` ${plain(interval)}`} ${plain(unit.name)}</b>`,
    plain(table.values[cell.valueIndex]), ...keys.map((key) => plain(name(key))),
  ];
  if (cell.processes > 1) lines.push(`${cell.processes} processes, medians differ by ${Number((100 * cell.spread).toPrecision(2))} %`);
  if (cell.flags.length) lines.push(`flags: ${plain(cell.flags.join(", "))}`);
  return lines.join("<br>");
}

// The y axis of these numbers: with two ticks or more, however close they are.
function yAxisOf(values, isLog) {
  if (!isLog) return { type: "linear", rangemode: "tozero" };
  const shown = values.filter((value) => value > 0);
  if (!shown.length) return { type: "log" };
  let [low, high] = [Math.min(...shown), Math.max(...shown)];
  if (high / low < 1.1) [low, high] = [low / 1.1, high * 1.1];
  const room = (high / low) ** 0.07;
  const range = [Math.log10(low / room), Math.log10(high * room)];
  if (range[1] - range[0] > 1) return { type: "log", range, dtick: "D2", tickformat: "~r" };
  return { type: "log", range, tickvals: linearTicks(10 ** range[0], 10 ** range[1]), tickformat: "~r" };
}

function linearTicks(low, high) {
  const rough = (high - low) / 6;
  const size = 10 ** Math.floor(Math.log10(rough));
  const step = size * [1, 2, 5, 10].find((factor) => factor * size >= rough);
  const ticks = [];
  for (let i = Math.ceil(low / step); i * step <= high; i += 1) ticks.push(Number((i * step).toPrecision(12)));
  return ticks;
}
