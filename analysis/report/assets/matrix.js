// The results table: a pivot as an HTML table.

const ROWS_AT_FIRST = 100;

// Creates an element; texts stay texts, whatever a store contains.
function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value === true) made.setAttribute(name, "");
    else if (value !== false && value != null) made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child != null));
  return made;
}

function matrixOf(table, results, { allRows, showAll }) {
  const { rows, cols, values, rowKeys, columnKeys } = table;
  const units = values.map((_, index) => {
    const medians = table.cells.filter((cell) => cell.valueIndex === index).map((cell) => cell.median);
    return table.units[index] ? chooseUnit(results.data.units, table.units[index], medians) : null;
  });
  const valueName = (index) => (units[index] ? `${values[index]} (${units[index].name})` : values[index]);
  const letters = lettersOf(table);
  const oneValue = values.length === 1 && cols.length > 0;
  const columnNames = oneValue ? cols : [...cols, "value"];
  const columnLabel = (key, level) =>
    level < cols.length ? results.label(cols[level], key[level]) : valueName(key[level]);

  const head = columnNames.map((name, level) => {
    const line = element("tr", {}, element("th", { class: "level-name", scope: "row", colspan: rows.length }, name));
    for (const [start, length] of spans(columnKeys, level)) {
      line.append(element("th", { scope: "col", colspan: length }, columnLabel(columnKeys[start], level)));
    }
    return line;
  });

  const rowNames = rows.map((name) => element("th", { scope: "col", class: "row-name" }, name));
  head.push(element("tr", {}, ...rowNames, element("td", { colspan: columnKeys.length })));

  const shown = allRows ? rowKeys : rowKeys.slice(0, ROWS_AT_FIRST);
  const starts = rows.map((_, level) => new Map(spans(shown, level)));
  const body = shown.map((key, row) => {
    const line = element("tr");
    rows.forEach((name, level) => {
      const length = starts[level].get(row);
      if (!length) return;
      const scope = length > 1 ? "rowgroup" : "row";
      line.append(element("th", { scope, rowspan: length > 1 ? length : null }, results.label(name, key[level])));
    });
    columnKeys.forEach((columnKey, column) => {
      line.append(cellOf(table.cell(row, column), units[columnKey.at(-1)], letters));
    });
    return line;
  });

  const { advice } = results.data;
  const notes = [...letters].map(([word, letter]) =>
    element("p", { class: "note" }, element("b", {}, letter), ` ${advice[word] ? `${word}: ${advice[word]}` : word}`));
  const more = rowKeys.length > shown.length
    ? element("button", { type: "button", onclick: showAll }, `Show all ${rowKeys.length} rows`)
    : null;
  // The mode tells how much of a training step the value `step` covers.
  const mode = values.some((name) => name.startsWith("step.")) && table.conditions.find(([name]) => name === "mode");
  const named = [oneValue && valueName(0), mode && mode.join(" ")].filter(Boolean).join(", ");
  const counts = values.some((name) => results.data.flop_rates.includes(name.split(".")[1]));
  const caption = `${named && `${named}: `}median and 95 % interval${counts ? `; ${results.data.counted}` : ""}`;
  const same = table.conditions.filter((one) => one !== mode).map((one) => one.join(" ")).join(", ");
  const differing = table.differing.map(([name, some]) => `${name} (${some})`).join(", ");
  const said = [same, differing && `cells differ in ${differing}`].filter(Boolean).join("; ");
  const title = element("p", { class: "caption" }, element("b", {}, caption), said && element("span", {}, said));
  const grid = element("table", { class: "matrix" }, element("thead", {}, ...head), element("tbody", {}, ...body));
  const scroll = element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption }, grid);
  return [title, scroll, ...(more ? [more] : []), ...notes];
}

// A letter for each flag and each reason, in order of appearance.
function lettersOf({ rowKeys, columnKeys, cell }) {
  const inOrder = rowKeys.flatMap((_, row) => columnKeys.map((__, column) => cell(row, column))).filter(Boolean);
  const words = new Set([...inOrder.flatMap(({ flags }) => flags), ...inOrder.map(({ reason }) => reason).filter(Boolean)]);
  return new Map([...words].map((word, i) => [word, i < 26 ? String.fromCharCode(97 + i) : String(i)]));
}

function cellOf(cell, unit, letters) {
  if (!cell) return element("td", { class: "nothing" }, NO_VALUE);
  const marks = [...cell.flags, ...(cell.reason ? [cell.reason] : [])].map((word) => letters.get(word)).join(",");
  const mark = marks ? element("sup", {}, marks) : null;
  if (cell.status !== "ok") return element("td", { class: "failed" }, cell.status, mark);
  if (cell.reason) return element("td", { class: "nothing" }, "n/a", mark);
  const [number, interval] = intervalTexts(...[cell.median, cell.low, cell.high].map((value) => value / unit.size));
  return element("td", {}, number, interval && element("span", { class: "interval" }, ` ${interval}`), mark);
}

// The runs of neighbours that share their keys down to this level, each as [first, length].
function spans(keys, level) {
  const runs = [];
  keys.forEach((key, i) => {
    const last = runs.at(-1);
    const same = last && key.slice(0, level + 1).every((code, j) => code === keys[last[0]][j]);
    if (same) last[1] += 1;
    else runs.push([i, 1]);
  });
  return runs;
}
