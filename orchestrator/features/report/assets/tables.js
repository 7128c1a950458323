// What every table of the page can do: sort, search, open a cell, and be copied as Markdown, LaTeX or CSV.

const embedded = (id) => JSON.parse(document.getElementById(`embedded-${id}`).textContent);

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

// The header cells above each column, from top to bottom.
function headerCells(table) {
  const columns = [];
  const taken = []; // by row and column, whether a cell that begins further up or left reaches there
  [...(table.tHead?.rows ?? [])].forEach((row, level) => {
    let column = 0;
    for (const cell of row.cells) {
      while (taken[level]?.[column]) column += 1;
      for (let right = 0; right < cell.colSpan; right += 1) {
        for (let down = 0; down < cell.rowSpan; down += 1) (taken[level + down] ??= [])[column + right] = true;
        columns[column + right] ??= [];
        const names = !cell.classList.contains("level-name") && !cell.classList.contains("index_name");
        if (cell.tagName === "TH" && cell.textContent.trim() && (names || level === table.tHead.rows.length - 1)) {
          columns[column + right].push(cell);
        }
      }
      column += cell.colSpan;
    }
  });
  return columns;
}

const columnNames = (table) => headerCells(table).map((cells) => cells.map((cell) => cell.textContent.trim()).join(" "));

const sortNumber = (text) => {
  const number = Number.parseFloat(text.replaceAll(",", "").replace(/^[^\d.+-]+/, ""));
  return Number.isNaN(number) ? null : number;
};

function compareTexts(one, other) {
  const [a, b] = [sortNumber(one), sortNumber(other)];
  if (a != null && b != null) return a - b;
  if ((a == null) !== (b == null)) return a == null ? 1 : -1; // words such as oom after the numbers
  return one.localeCompare(other, "en", { numeric: true });
}

// Makes the lowest header of each column sort the rows; a second press turns the order round.
function makeSortable(table) {
  if (!table.tBodies[0]) return;
  headerCells(table).forEach((cells, column) => {
    const cell = cells.at(-1);
    if (!cell || cell.colSpan > 1 || cell.querySelector("button")) return;
    const button = element("button", { type: "button", class: "sort" });
    button.append(...cell.childNodes);
    button.addEventListener("click", () => sortRows(table, cell, column));
    cell.append(button);
  });
}

function sortRows(table, header, column) {
  const descending = header.getAttribute("aria-sort") === "ascending";
  table.querySelectorAll("[aria-sort]").forEach((one) => one.removeAttribute("aria-sort"));
  header.setAttribute("aria-sort", descending ? "descending" : "ascending");
  table.classList.add("sorted", "all");
  const text = (row) => row.cells[column]?.textContent.trim() ?? "";
  const rows = [...table.tBodies[0].rows].sort((a, b) => compareTexts(text(a), text(b)) * (descending ? -1 : 1));
  table.tBodies[0].append(...rows);
}

// Names each cell by its column, for the layout of narrow screens.
function nameCells(table) {
  const names = columnNames(table);
  for (const row of table.tBodies[0]?.rows ?? []) {
    [...row.cells].forEach((cell, column) => { if (names[column]) cell.dataset.label = names[column]; });
  }
}

// Lets a long name of a field or value take several lines: `measure_` and `steps`.
function breakAtUnderscores(cell) {
  for (const node of [...cell.childNodes].filter(({ nodeType }) => nodeType === Node.TEXT_NODE)) {
    node.replaceWith(...node.data.split(/(?<=_)/).flatMap((part, i) => (i ? [element("wbr"), part] : [part])));
  }
}

function prepareTable(table) {
  table.querySelectorAll("thead th").forEach((cell) => {
    if (cell.textContent.trim()) return;
    const empty = element("td", { colspan: cell.colSpan });
    cell.replaceWith(empty);
  });
  table.querySelectorAll("th").forEach(breakAtUnderscores);
  nameCells(table);
  makeSortable(table);
  const most = matchMedia("(max-width: 40rem)").matches ? 8 : 24; // about a screen, of a phone or of a desk
  const rows = [...(table.tBodies[0]?.rows ?? [])];
  if (rows.length <= most + 4) return; // a button is not worth four rows
  for (const row of rows.slice(most)) row.classList.add("beyond");
  (table.closest(".scroll") ?? table).after(element(
    "button", { type: "button", class: "more", onclick: (event) => { table.classList.add("all"); event.currentTarget.remove(); } },
    `Show all ${rows.length} rows`));
}

const shownRows = (table) => [...(table.tBodies[0]?.rows ?? [])].filter((row) => !row.hidden);

// The text of a cell, its marks in brackets.
function cellText(cell) {
  const copy = cell.cloneNode(true);
  copy.querySelectorAll("sup").forEach((mark) => mark.replaceWith(` [${mark.textContent}]`));
  return copy.textContent.replace(/\s+/g, " ").trim();
}

function markdownOf(table) {
  const names = columnNames(table);
  const escape = (text) => text.replace(/([\\`*<>|])/g, "\\$1");
  const line = (texts) => `| ${texts.map(escape).join(" | ")} |\n`;
  const keys = table.tBodies[0].rows[0] ? [...table.tBodies[0].rows[0].cells].map((cell) => cell.tagName === "TH") : [];
  return line(names) + `|${names.map((_, i) => (keys[i] ? ":---" : "---:")).join("|")}|\n`
    + shownRows(table).map((row) => line([...row.cells].map(cellText))).join("");
}

function latexOf(table) {
  const special = { "\\": "\\textbackslash{}", "~": "\\textasciitilde{}", "^": "\\textasciicircum{}" };
  const escape = (text) => text.replace(/[\\~^&%$#_{}]/g, (one) => special[one] ?? `\\${one}`);
  const line = (texts) => `${texts.map(escape).join(" & ")} \\\\\n`;
  const names = columnNames(table);
  const keys = table.tBodies[0].rows[0] ? [...table.tBodies[0].rows[0].cells].map((cell) => cell.tagName === "TH") : [];
  const columns = names.map((_, i) => (keys[i] ? "l" : "r")).join("");
  return `\\begin{tabular}{${columns}}\n\\toprule\n${line(names)}\\midrule\n`
    + `${shownRows(table).map((row) => line([...row.cells].map(cellText))).join("")}\\bottomrule\n\\end{tabular}\n`;
}

// What a table shows, as CSV.
function csvOfTable(table) {
  const quoted = (text) => (/[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
  const lines = [columnNames(table), ...shownRows(table).map((row) => [...row.cells].map(cellText))];
  return lines.map((line) => `${line.map(quoted).join(",")}\n`).join("");
}

function download(name, text) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
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
    } while (next && !(next.classList.contains("opens") && next.offsetParent));
    if (!next) return;
    from.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  });
}

async function copyText(text, button) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = element("textarea", { "aria-label": "text to copy" });
    area.value = text;
    (button.closest("dialog") ?? document.body).append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  const said = button.textContent;
  button.textContent = "Copied";
  setTimeout(() => { button.textContent = said; }, 1200);
}

// A search field and copy buttons.
function tableTools(name, table) {
  const copy = (text, make) => element(
    "button", { type: "button", "aria-label": `copy ${name} as ${text}`, onclick: (event) => copyText(make(), event.currentTarget) }, text);
  const search = element("input", {
    type: "search", placeholder: "search rows", "aria-label": `search rows of ${name}`,
    oninput: () => searchRows(table, search.value),
  });
  return element(
    "div", { class: "controls tools" }, search,
    element("span", { class: "copies" }, "Copy as ", copy("Markdown", () => markdownOf(table)), " ",
      copy("LaTeX", () => latexOf(table)), " ", copy("CSV", () => csvOfTable(table))));
}

function searchRows(table, asked) {
  table.classList.add("all");
  const words = asked.toLowerCase().split(/\s+/).filter(Boolean);
  for (const row of table.tBodies[0]?.rows ?? []) {
    const text = row.textContent.toLowerCase();
    row.hidden = !words.every((word) => text.includes(word));
  }
}
