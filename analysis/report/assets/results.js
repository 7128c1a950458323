// The store's results: their values, the labels of their keys, and their layout along rows and columns.

const NO_VALUE = "-";
const MOST_CHOICES = 100;

const decoded = (text, type) => new type(Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0)).buffer);

class Results {
  constructor(data) {
    this.data = data;
    this.count = data.results;
    this.status = decoded(data.status, Int32Array);
    this.decodedKeys = new Map();
    this.decodedValues = new Map();
  }

  // The index of each result's value of a key; undefined if all results have the same value.
  codes(name) {
    const text = this.data.keys[name].codes;
    if (text && !this.decodedKeys.has(name)) this.decodedKeys.set(name, decoded(text, Int32Array));
    return this.decodedKeys.get(name);
  }

  code = (name, result) => this.codes(name)?.[result] ?? 0;

  label = (name, code) => this.data.keys[name].labels[code];

  csvLabel = (name, code) => (this.data.keys[name].csv ?? this.data.keys[name].labels)[code];

  // Keys that differ between any two results.
  varying = () => Object.keys(this.data.keys).filter((name) => this.data.keys[name].codes);

  // Keys offered as filters: of several that divide the results in the same way, only the first.
  worthFiltering() {
    const { keys, conditions } = this.data;
    const divisions = new Set();
    const names = [...conditions, ...Object.keys(keys).filter((name) => !conditions.includes(name))];
    return names.filter((name) => keys[name]?.codes && keys[name].labels.length <= MOST_CHOICES).filter((name) => {
      const met = new Map();
      const division = Array.from(this.codes(name), (code) => met.get(code) ?? met.set(code, met.size).get(code)).join();
      return divisions.size < divisions.add(division).size;
    });
  }

  statusWord = (result) => this.data.statuses[this.status[result]];

  // The columns of one phase.metric.
  value(name) {
    if (!this.decodedValues.has(name)) {
      const { result, median, low, high, processes, spread, flags, reason, ...rest } = this.data.values[name] ?? {};
      if (result == null) return undefined;
      const floats = (text) => (text == null ? undefined : decoded(text, Float64Array));
      const integers = (text) => (text == null ? undefined : decoded(text, Int32Array));
      this.decodedValues.set(name, {
        ...rest, result: integers(result), median: floats(median), low: floats(low), high: floats(high),
        processes: floats(processes), spread: floats(spread), flags: integers(flags), reason: integers(reason),
        samples: rest.samples && decoded(rest.samples, Float32Array), samplesLengths: integers(rest.samples_lengths),
        warmup: rest.warmup && decoded(rest.warmup, Float32Array), warmupLengths: integers(rest.warmup_lengths),
        processLengths: rest.process_lengths,
      });
    }
    return this.decodedValues.get(name);
  }

  // A cell for each chosen result that has one of the values, and for each that failed to produce it.
  cells(values, where) {
    const chosen = (result) => Object.entries(where).every(([name, codes]) => codes.has(this.code(name, result)));
    const cells = [];
    values.forEach((name, valueIndex) => {
      const value = this.value(name);
      const { flags, reasons } = this.data;
      for (let i = 0; i < value.result.length; i += 1) {
        const result = value.result[i];
        if (!chosen(result)) continue;
        cells.push({
          result, valueIndex, status: "ok", median: value.median[i],
          low: value.low?.[i] ?? NaN, high: value.high?.[i] ?? NaN,
          processes: value.processes?.[i] ?? 1, spread: value.spread?.[i] ?? NaN,
          flags: flags[value.flags?.[i] ?? 0], reason: reasons[value.reason?.[i] ?? 0],
        });
      }
      for (let result = 0; result < this.count; result += 1) {
        const status = this.statusWord(result);
        if (status === "ok" || !value.workloads.includes(this.label("workload", this.code("workload", result)))) continue;
        if (chosen(result)) {
          cells.push({ result, valueIndex, status, median: NaN, low: NaN, high: NaN, flags: [], reason: "" });
        }
      }
    });
    return cells;
  }

  // A table as `lmsweep.analysis.pivot` makes it; `crowded` names the keys that distinguish results sharing a cell.
  pivot({ rows, cols, values, where }) {
    const cells = this.cells(values, where);
    const rowAxis = axisOf(cells, (cell) => rows.map((name) => this.code(name, cell.result)));
    const columnAxis = axisOf(cells, (cell) => [...cols.map((name) => this.code(name, cell.result)), cell.valueIndex]);
    const places = cells.map((cell, i) => rowAxis.placeOf[i] * columnAxis.keys.length + columnAxis.placeOf[i]);
    const grid = new Map();
    const crowd = new Set();
    cells.forEach((cell, i) => {
      if (grid.has(places[i])) crowd.add(places[i]);
      else grid.set(places[i], cell);
    });
    return {
      rows, cols, values, cells,
      rowKeys: rowAxis.keys, columnKeys: columnAxis.keys,
      cell: (row, column) => grid.get(row * columnAxis.keys.length + column),
      units: values.map((name, index) => this.unit(name, cells.filter((cell) => cell.valueIndex === index))),
      conditions: this.conditions(cells, [...rows, ...cols]),
      differing: this.differing(cells, [...rows, ...cols]),
      crowded: crowd.size ? this.distinguishingKeys(cells.filter((_, i) => crowd.has(places[i])), cells, places) : [],
    };
  }

  unit(name, cells) {
    const { unit: stored, speed } = this.data.values[name];
    return speed || cells.some((cell) => cell.status === "ok") ? stored : null;
  }

  // The keys that, added to rows or columns, leave one result in each cell.
  distinguishingKeys(crowd, cells, places) {
    const placeOf = new Map(cells.map((cell, i) => [cell, places[i]]));
    const differsWithin = (name, keys) => {
      const seen = new Map();
      return crowd.some((cell) => {
        const group = [placeOf.get(cell), ...keys.map((key) => this.code(key, cell.result))].join();
        const code = this.code(name, cell.result);
        if (!seen.has(group)) seen.set(group, code);
        return seen.get(group) !== code;
      });
    };
    const { distinguishing, conditions, dimensions } = this.data;
    let differing = distinguishing.filter((name) => differsWithin(name, []));
    if (differing.includes("model")) differing = differing.filter((name) => !dimensions.includes(name));
    const byWorth = [...differing].sort((a, b) => conditions.includes(b) - conditions.includes(a));
    return byWorth.reduce((missing, name) => (differsWithin(name, missing) ? [...missing, name] : missing), []);
  }

  // The keys that have the same value in all cells and are worth naming.
  conditions(cells, named) {
    const { conditions, usual, read_by_some: readBySome, read: readBy } = this.data;
    if (!cells.length) return [];
    const read = new Set(cells.flatMap((cell) => readBy[this.label("workload", this.code("workload", cell.result))] ?? readBySome));
    return conditions
      .filter((name) => !named.includes(name) && (!readBySome.includes(name) || read.has(name)))
      .filter((name) => cells.every((cell) => this.code(name, cell.result) === this.code(name, cells[0].result)))
      .map((name) => [name, this.label(name, this.code(name, cells[0].result))])
      .filter(([name, text]) => text !== NO_VALUE && text !== usual[name]);
  }

  // Keys that are neither rows nor columns although cells differ in them, and some of their values.
  differing(cells, named) {
    const { conditions, distinguishing, follows } = this.data;
    const varies = (name) => {
      const seen = new Map();
      return cells.some(({ result }) => {
        const leading = (follows[name] ?? []).map((key) => this.code(key, result)).join();
        const code = this.code(name, result);
        if (!seen.has(leading)) seen.set(leading, code);
        return seen.get(leading) !== code;
      });
    };
    const readings = (name) => {
      const codes = [...new Set(cells.map(({ result }) => this.code(name, result)))].sort((a, b) => a - b);
      return codes.slice(0, 3).map((code) => this.label(name, code)).join(", ") + (codes.length > 3 ? ", ..." : "");
    };
    const names = [...new Set([...conditions, ...distinguishing])];
    return names.filter((name) => !named.includes(name) && varies(name)).map((name) => [name, readings(name)]);
  }
}

// The distinct keys of the cells in order, and the index of each cell's key.
function axisOf(cells, keyOf) {
  const keys = new Map();
  const keyOfCell = cells.map((cell) => {
    const key = keyOf(cell);
    const text = key.join();
    if (!keys.has(text)) keys.set(text, key);
    return text;
  });
  const ordered = [...keys.entries()].sort(([, a], [, b]) => compare(a, b));
  const place = new Map(ordered.map(([text], i) => [text, i]));
  return { keys: ordered.map(([, key]) => key), placeOf: keyOfCell.map((text) => place.get(text)) };
}

function compare(a, b) {
  for (let i = 0; i < a.length; i += 1) if (a[i] !== b[i]) return a[i] - b[i];
  return 0;
}
