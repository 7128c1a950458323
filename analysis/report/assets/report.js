// The page's main script: reads the embedded data, draws, and follows the reader's choice of light or dark.

const embedded = (id) => JSON.parse(document.getElementById(`embedded-${id}`).textContent);

const stores = embedded("data").map((data) => new Results(data));
const [results] = stores;
const drill = new Drill(stores);

const compared = embedded("compared");
const answer = compared && new Answer(compared, (value, places, words) => drill.open(value, places, [element("p", {}, words)]));

const explorer = new Explorer(results, (cell, value) => drill.open(value, [{ store: 0, result: cell.result }]));
explorer.show();
drill.recall();

document.getElementById("download").addEventListener("click", () => {
  download(`${explorer.values.join("+")}.csv`, csvOf(explorer.table, results));
});
document.getElementById("matrix").after(tableTools(
  "the results", () => document.querySelector("#matrix table"), () => csvOf(explorer.table, results)));
document.getElementById("chart-note").before(pictureButtons(document.getElementById("chart"), () => explorer.values.join("+")));

const tables = embedded("tables");
for (const button of document.querySelectorAll("button[data-table]")) {
  button.addEventListener("click", () => download(`${button.dataset.table}.csv`, tables[button.dataset.table]));
}

// A preset table is prepared when it is first shown.
for (const region of document.querySelectorAll(".plain")) {
  const prepare = () => {
    const table = region.querySelector("table");
    if (region.dataset.prepared || !table) return;
    region.dataset.prepared = "yes";
    prepareTable(table);
    region.before(tableTools(region.dataset.name, () => table, () => tables[region.dataset.name]));
  };
  const details = region.closest("details");
  if (!details || details.open) prepare();
  details?.addEventListener("toggle", prepare);
  addEventListener("beforeprint", prepare);
}
for (const table of document.querySelectorAll("table.stacked, table.environments")) nameCells(table);

// Charts further down are drawn when they come into view, and again when the reader chooses another trial.
const figures = embedded("figures");
const targets = [...document.querySelectorAll("[data-figures]")];
const chooser = (target) => document.getElementById(`choose-${target.dataset.figures}`);
const otherOf = (target) => document.getElementById(`other-${target.dataset.figures}`);

// Draws the chosen trial, and below it, on the same scale, the one that it is compared with.
function show(target) {
  const { figures: name, heading } = target.dataset;
  const figure = figures[name][chooser(target)?.value ?? 0];
  const other = figures[name][otherOf(target)?.value || -1];
  const top = other && Math.max(figure.top, other.top);
  drawFigure(target, figure, heading, top);
  const there = document.getElementById(`second-${name}`);
  if (!other) {
    drawn.delete(there);
    there?.remove();
    return;
  }
  const second = there ?? element("div", { class: "chart", id: `second-${name}`, role: "group", "aria-label": `${heading}: the trial compared with` });
  if (!there) target.after(second);
  drawFigure(second, other, heading, top);
}
const watcher = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) {
    if (!isIntersecting) continue;
    watcher.unobserve(target);
    show(target);
  }
}, { rootMargin: "400px" });
for (const target of targets) {
  watcher.observe(target);
  target.after(pictureButtons(target, () => target.dataset.figures));
  for (const select of [chooser(target), otherOf(target)].filter(Boolean)) {
    select.value = state.get(select.id) ?? select.value;
    select.addEventListener("change", () => {
      remember(select.id, select.value);
      show(target);
    });
  }
}
document.getElementById(state.get("at"))?.scrollIntoView();

const theme = document.getElementById("theme");
theme.addEventListener("change", () => {
  document.documentElement.dataset.theme = theme.value;
  redrawAll();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redrawAll);

let waiting;
addEventListener("resize", () => {
  clearTimeout(waiting);
  waiting = setTimeout(redrawAll, 100);
});

// A click outside an open menu, or Escape, closes it.
addEventListener("click", (event) => {
  document.querySelectorAll("details.filter[open]").forEach((menu) => { if (!menu.contains(event.target)) menu.open = false; });
});
addEventListener("keydown", (event) => {
  const menu = event.key === "Escape" && document.querySelector("details.filter[open]");
  if (!menu) return;
  menu.open = false;
  menu.querySelector("summary").focus();
});

// Browsers shrink the whole page to its widest table. Instead, a table that is too wide is printed smaller, and one that
// would then be too small to read as a paragraph for each row.
const SMALLEST_ON_PAPER = 0.7;

function fitTables() {
  const room = document.querySelector("main").clientWidth;
  const wide = [...document.querySelectorAll(".scroll > table")].map((table) => [table, room / table.offsetWidth]).filter(([, part]) => part < 1);
  for (const [table, part] of wide) {
    if (part < SMALLEST_ON_PAPER) table.classList.add("cards");
    else table.style.zoom = part;
  }
}

// On paper everything is open.
let opened = [];
addEventListener("beforeprint", () => {
  opened = [...document.querySelectorAll("details.table:not([open])")];
  for (const details of opened) details.open = true;
  document.documentElement.classList.add("printing");
  targets.filter((target) => !drawn.has(target)).forEach(show);
  redrawAll();
  fitTables();
});
addEventListener("afterprint", () => {
  for (const table of document.querySelectorAll("table")) {
    table.style.zoom = "";
    table.classList.remove("cards");
  }
  for (const details of opened) details.open = false;
  document.documentElement.classList.remove("printing");
  redrawAll();
});
