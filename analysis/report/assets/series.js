// The first chart: one value of the table along one key, with a line for each combination of the other keys.

const MOST_SERIES = 28;

// Keys in which the selected cells differ, those best suited as x axis first.
function possibleX(results, keys, cells) {
  const varies = (name) => cells.some((cell) => results.code(name, cell.result) !== results.code(name, cells[0].result));
  const worth = (name) => {
    if (name === "context_length") return 3;
    if (name === "model") return 2;
    return isNumeric(results, name, cells) ? 1 : 0;
  };
  return keys.filter((name) => cells.length && varies(name)).sort((a, b) => worth(b) - worth(a));
}

// Whether all of these results have a number for this key, so that its axis can be numeric.
function isNumeric(results, name, cells) {
  const { numbers } = results.data.keys[name];
  return Boolean(numbers) && cells.every((cell) => numbers[results.code(name, cell.result)] != null);
}

function seriesOf(results, table, cells, { x, colour }) {
  const keys = [...table.rows, ...table.cols].filter((name) => name !== x);
  const told = possibleX(results, keys, cells);
  const unit = chooseUnit(results.data.units, table.units[cells[0].valueIndex], cells.map((cell) => cell.median));
  const byKey = new Map();
  for (const cell of cells) {
    const codes = told.map((name) => results.code(name, cell.result));
    const key = codes.join();
    if (!byKey.has(key)) byKey.set(key, { codes, cells: [] });
    byKey.get(key).cells.push(cell);
  }
  const all = [...byKey.values()].sort((a, b) => compare(a.codes, b.codes));
  const series = all.slice(0, MOST_SERIES);
  const colourIndex = told.indexOf(colour);
  const rest = new Map();
  const colours = new Map();
  for (const one of series) {
    const restKey = one.codes.filter((_, i) => i !== colourIndex).join();
    if (!colours.has(one.codes[colourIndex])) colours.set(one.codes[colourIndex], colours.size);
    if (!rest.has(restKey)) rest.set(restKey, rest.size);
    one.colour = colours.get(one.codes[colourIndex]);
    one.look = rest.get(restKey);
    one.name = told.map((name, i) => results.label(name, one.codes[i])).join(", ");
  }
  return { series, told, unit, left: all.length - series.length };
}

function tracesOf(results, table, chosen, x, numeric) {
  const { numbers, labels } = results.data.keys[x];
  const ordered = numeric || x === "model";
  return chosen.series.map((one) => {
    const cells = [...one.cells].sort((a, b) => results.code(x, a.result) - results.code(x, b.result));
    const codes = cells.map((cell) => results.code(x, cell.result));
    const scaled = (value) => value / chosen.unit.size;
    const distance = (end) => (Number.isNaN(end) ? 0 : Math.abs(end));
    const colour = COLOURS[one.colour % COLOURS.length];
    const oneEach = new Set(codes).size === codes.length;
    return {
      type: "scatter", mode: ordered && oneEach ? "lines+markers" : "markers", name: plain(one.name),
      x: codes.map((code) => (numeric ? numbers[code] : plain(labels[code]))),
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
