// The results table: a pivot as an HTML table.

const ROWS_AT_FIRST = 100;

function matrixOf(table, results, openCell) {
  const { rows, cols, values, rowKeys, columnKeys } = table;
  const units = values.map((_, index) => {
    const medians = table.cells.filter((cell) => cell.valueIndex === index).map((cell) => cell.median);
    return table.units[index] ? chooseUnit(results.data.units, table.units[index], medians) : null;
  });
  const valueName = (index) => (units[index] ? `${values[index]} (${units[index].name})` : values[index]);
  const letters = lettersOf(table);
  const oneValue = values.length === 1 && cols.length > 0;
  const levelNames = oneValue ? cols : [...cols, "value"];
  const columnLabel = (key, level) =>
    level < cols.length ? results.label(cols[level], key[level]) : valueName(key[level]);

  const head = levelNames.map((name, level) => {
    const line = element("tr", {}, element("th", { class: "level-name", scope: "row", colspan: rows.length }, name));
    for (const [start, length] of spans(columnKeys, level)) {
      line.append(element("th", { scope: "col", colspan: length }, columnLabel(columnKeys[start], level)));
    }
    return line;
  });

  const rowNames = rows.map((name) => element("th", { scope: "col", class: "row-name" }, name));
  head.push(element("tr", {}, ...rowNames, element("td", { colspan: columnKeys.length })));

  const body = rowKeys.map((key, row) => {
    const line = element("tr", { class: row < ROWS_AT_FIRST ? null : "beyond" });
    const before = rowKeys[row - 1];
    rows.forEach((name, level) => {
      const again = before && key.slice(0, level + 1).every((code, i) => code === before[i]);
      line.append(element("th", { scope: "row", class: again ? "again" : null }, results.label(name, key[level])));
    });
    columnKeys.forEach((columnKey, column) => {
      const cell = table.cell(row, column);
      const made = cellOf(cell, units[columnKey.at(-1)], letters);
      if (cell) opens(made, () => openCell(cell));
      line.append(made);
    });
    return line;
  });

  const { advice } = results.data;
  const notes = [...letters].map(([word, letter]) =>
    element("p", { class: "note" }, element("b", {}, letter), ` ${advice[word] ? `${word}: ${advice[word]}` : word}`));
  // The mode says how much of a training step the value `step` covers.
  const mode = values.some((name) => name.startsWith("step.")) && table.conditions.find(([name]) => name === "mode");
  const named = [oneValue && valueName(0), mode && mode.join(" ")].filter(Boolean).join(", ");
  const counts = values.some((name) => results.data.flop_rates.includes(name.split(".")[1]));
  const caption = `${named && `${named}: `}median and 95 % interval${counts ? `; ${results.data.counted}` : ""}`;
  const same = table.conditions.filter((one) => one !== mode).map((one) => one.join(" ")).join(", ");
  const differing = table.differing.map(([name, some]) => `${name} (${some})`).join(", ");
  const said = [same, differing && `cells differ in ${differing}`].filter(Boolean).join("; ");
  const title = element("p", { class: "caption" }, element("b", {}, caption), said && element("span", {}, said));
  const grid = element("table", { class: "matrix" }, element("thead", {}, ...head), element("tbody", {}, ...body));
  nameCells(grid);
  makeSortable(grid);
  walkable(grid);
  const scroll = element("div", { class: "scroll", role: "region", "aria-label": "table of the results" }, grid);
  const more = rowKeys.length > ROWS_AT_FIRST && element(
    "button", { type: "button", class: "more", onclick: (event) => { grid.classList.add("all"); event.currentTarget.remove(); } },
    `Show all ${rowKeys.length} rows`);
  return [title, scroll, ...(more ? [more] : []), ...notes];
}

// Makes a cell open its result: by a click, or by Enter once the arrow keys have reached it.
function opens(cell, open) {
  cell.classList.add("opens");
  cell.tabIndex = -1;
  cell.addEventListener("click", open);
  cell.addEventListener("keydown", (event) => { if (event.key === "Enter") open(); });
}

// Makes one cell of a table a stop of the Tab key, from which the arrow keys lead to the others.
function walkable(table) {
  const first = table.querySelector("td.opens");
  if (first) first.tabIndex = 0;
  table.addEventListener("keydown", (event) => {
    const from = event.target.closest("td.opens");
    const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
    if (!from || !step) return;
    event.preventDefault();
    let [row, column] = [from.parentElement.sectionRowIndex, from.cellIndex];
    let next;
    do {
      row += step[0];
      column += step[1];
      next = table.tBodies[0].rows[row]?.cells[column];
    } while (next && !next.classList.contains("opens"));
    if (!next) return;
    from.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  });
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
