// The page's main script: reads the embedded data, draws, and follows the reader's choice of light or dark.

const embedded = (id) => JSON.parse(document.getElementById(`embedded-${id}`).textContent);

const results = new Results(embedded("data"));
const explorer = new Explorer(results);
explorer.show();

document.getElementById("download").addEventListener("click", () => {
  download(`${explorer.values.join("+")}.csv`, csvOf(explorer.table, results));
});

const tables = embedded("tables");
for (const button of document.querySelectorAll("button[data-table]")) {
  button.addEventListener("click", () => download(`${button.dataset.table}.csv`, tables[button.dataset.table]));
}

// Charts further down are drawn when they come into view, and again when the reader chooses another trial.
const figures = embedded("figures");
const targets = [...document.querySelectorAll("[data-figures]")];
const chooser = (target) => document.getElementById(`choose-${target.dataset.figures}`);
const show = (target) => drawFigure(target, figures[target.dataset.figures][chooser(target)?.value ?? 0]);
const watcher = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) {
    if (!isIntersecting) continue;
    watcher.unobserve(target);
    show(target);
  }
}, { rootMargin: "400px" });
for (const target of targets) {
  watcher.observe(target);
  chooser(target)?.addEventListener("change", () => show(target));
}

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

addEventListener("beforeprint", () => {
  document.documentElement.classList.add("printing");
  targets.filter((target) => !drawn.has(target)).forEach(show);
  redrawAll();
});
addEventListener("afterprint", () => {
  document.documentElement.classList.remove("printing");
  redrawAll();
});
