// The page's main script: reads the embedded data, draws, and follows the reader's choice of light or dark.

const drill = new Drill(embedded("data"));
const views = new Views(embedded("drawn"), drill);
drill.recall();

const chart = document.getElementById("chart");
document.getElementById("chart-note").before(pictureButtons(chart, () => views.view.name));
document.getElementById("copy-link").addEventListener("click", (event) => copyText(location.href, event.currentTarget));

const tables = embedded("tables");
addEventListener("click", ({ target }) => {
  const name = target.closest?.("button[data-table]")?.dataset.table;
  if (name == null) return;
  const packed = new Blob([decoded(tables[name], Uint8Array)]).stream().pipeThrough(new DecompressionStream("deflate"));
  new Response(packed).text().then((text) => download(`${name}.csv`, text));
});

// A preset table is prepared when it is first shown.
for (const region of document.querySelectorAll(".section .plain")) {
  const prepare = () => {
    const table = region.querySelector("table");
    if (region.dataset.prepared || !table) return;
    region.dataset.prepared = "yes";
    prepareTable(table);
    region.before(tableTools(region.dataset.name, table));
  };
  const details = region.closest("details");
  if (!details || details.open) prepare();
  details?.addEventListener("toggle", prepare);
}
for (const table of document.querySelectorAll("table.stacked, table.environments, table.prices")) nameCells(table);

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
goTo(document.getElementById(state.get("at")));

// What each device costs for the same work, at prices that the reader can change.
const priceRows = [...document.querySelectorAll(".prices tbody tr")];
function showCosts() {
  const inputs = priceRows.map((row) => row.querySelector("input"));
  const [base] = inputs.map((input) => Number.parseFloat(input.value));
  priceRows.forEach((row, i) => {
    const [price, speed] = [Number.parseFloat(inputs[i].value), Number(row.dataset.speed)];
    const known = price > 0 && base > 0;
    const speeds = JSON.parse(row.dataset.speeds);
    const cheaper = `, cheaper in ${speeds.filter((one) => price < base * one).length} of ${speeds.length} combinations`;
    row.cells[3].textContent = known ? `${(price / base / speed).toPrecision(3)}×${i ? cheaper : ""}` : NO_VALUE;
    row.cells[4].textContent = i === 0 ? "baseline" : base > 0 ? `$${(base * speed).toPrecision(3)}/h` : NO_VALUE;
  });
}
priceRows.forEach((row, i) => {
  const input = row.querySelector("input");
  input.value = state.get(`price${i}`) ?? input.value;
  input.addEventListener("change", () => { remember(`price${i}`, input.value); showCosts(); });
});
showCosts();

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
  document.querySelectorAll("details.filter[open]").forEach((menu) => { if (!menu.contains(event.target) || event.target.closest("a")) menu.open = false; });
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

// On paper is what is open.
addEventListener("beforeprint", () => {
  document.documentElement.classList.add("printing");
  redrawAll();
  fitTables();
});
addEventListener("afterprint", () => {
  for (const table of document.querySelectorAll("table")) {
    table.style.zoom = "";
    table.classList.remove("cards");
  }
  document.documentElement.classList.remove("printing");
  redrawAll();
});
