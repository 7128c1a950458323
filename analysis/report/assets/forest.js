// What each choice changes: a table of ratios with their intervals, drawn on one logarithmic axis.

const FOREST = { width: 190, height: 22, room: 6 };

// lines: { field, contrast, baseline, ratio: { mean, low, high }, better, counts, chosen, open }. timed: more is faster.
function forestOf(name, lines, timed) {
  const ends = lines.flatMap(({ ratio }) => [ratio.mean, ratio.low ?? ratio.mean, ratio.high ?? ratio.mean]);
  const [low, high] = [Math.min(0.9, ...ends), Math.max(1.1, ...ends)];
  const x = (value) => FOREST.room + ((FOREST.width - 2 * FOREST.room) * Math.log(value / low)) / Math.log(high / low);
  const body = lines.map((line, n) => {
    const { mean, low: from, high: to } = line.ratio;
    const decided = Object.keys(line.counts).some((word) => ["better", "worse"].includes(VERDICTS[word][1]) && !["failed", "fixed"].includes(word));
    const sure = decided && from != null && (from > 1 || to < 1);
    const kind = sure ? line.better ? "is-better" : "is-worse" : "is-unsure";
    const again = lines[n - 1]?.field === line.field;
    const number = element("td", {}, element("b", {}, `${threeDigits(mean)}×`),
      from == null ? null : element("span", { class: "interval" }, ` [${threeDigits(from)}, ${threeDigits(to)}]`));
    opens(number, line.open);
    const row = element(
      "tr", { class: line.chosen ? "chosen" : null },
      element("th", { scope: "row", class: again ? "again" : null }, line.field),
      element("td", {}, line.contrast, element("span", { class: "interval" }, ` against ${line.baseline}`)), number,
      element("td", { class: "drawn" }, svg(
        "svg", { width: FOREST.width, height: FOREST.height, "aria-hidden": "true", class: kind },
        svg("line", { class: "one", x1: x(1), x2: x(1), y1: 0, y2: FOREST.height }),
        from == null ? null : svg("line", { class: "reach", x1: x(from), x2: x(to), y1: FOREST.height / 2, y2: FOREST.height / 2 }),
        svg("circle", { cx: x(mean), cy: FOREST.height / 2, r: 4 }))),
      element("td", {}, Object.entries(line.counts).map(([word, count]) => `${count} ${word}`).join(", ")));
    return row;
  });
  const axis = forestTicks(low, high).map((tick) => svg("text", { x: x(tick), y: 14, "text-anchor": "middle" }, `${tick}×`));
  const head = ["choice", "value", timed ? "times as fast" : "times as much"].map((text) => element("th", { scope: "col" }, text));
  const table = element(
    "table", { class: "words forest" },
    element("caption", {}, name),
    element("thead", {}, element("tr", {}, ...head,
      element("td", { class: "drawn" }, svg("svg", { width: FOREST.width, height: 18, "aria-hidden": "true" }, ...axis)),
      element("th", { scope: "col" }, "cells"))),
    element("tbody", {}, ...body));
  nameCells(table);
  walkable(table);
  return element("div", { class: "scroll", role: "region", "aria-label": `what each choice changes: ${name}` }, table);
}

// 1 and, if there is room, round numbers on both sides of it.
function forestTicks(low, high) {
  const round = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 0.7, 0.8, 0.9, 1, 1.1, 1.2, 1.5, 2, 5, 10, 20, 50, 100].filter((tick) => tick >= low && tick <= high);
  const least = (Math.log(high / low) * 34) / FOREST.width; // an eighth of the axis apart, so that they do not touch
  const kept = [1];
  for (const tick of round.toSorted((a, b) => Math.abs(Math.log(b)) - Math.abs(Math.log(a)))) {
    if (kept.every((one) => Math.abs(Math.log(one / tick)) > least)) kept.push(tick);
  }
  return kept;
}

function svg(tag, attributes, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) if (value != null) made.setAttribute(name, value);
  made.append(...children.filter((child) => child != null));
  return made;
}
