// The page: reads what is embedded in it, draws, and follows the reader's choice of light or dark.

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

// Charts further down are drawn when they are about to be seen.
const figures = embedded("figures");
const watcher = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) {
    if (!isIntersecting) continue;
    watcher.unobserve(target);
    drawFigure(target, figures[target.dataset.figure]);
  }
}, { rootMargin: "400px" });
document.querySelectorAll("[data-figure]").forEach((target) => watcher.observe(target));

const theme = document.getElementById("theme");
theme.addEventListener("change", () => {
  document.documentElement.dataset.theme = theme.value;
  redrawAll();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redrawAll);

// Menus close as menus do.
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
  document.querySelectorAll("[data-figure]").forEach((target) => drawn.has(target) || drawFigure(target, figures[target.dataset.figure]));
  redrawAll();
});
addEventListener("afterprint", () => {
  document.documentElement.classList.remove("printing");
  redrawAll();
});
